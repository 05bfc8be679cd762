"""Copies of messages, many at once: each is as its original in every part, and shares nothing with it that can be changed."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph_models import Note
from langgraph_savers import config, put

from holdfast.adapters.langgraph.copies import Copies
from holdfast.adapters.langgraph.types import SaverTypes
from holdfast.codec.codec import Codec
from holdfast.langgraph import HoldfastSaver

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=3), inside, max_size=3),
    max_leaves=5,
)
keywords = st.dictionaries(st.sampled_from(["a", "b"]), plain, max_size=2)
messages = st.one_of(
    st.builds(HumanMessage, st.text(max_size=5), id=st.none() | st.text(max_size=3), additional_kwargs=keywords),
    st.builds(AIMessage, st.text(max_size=5), response_metadata=keywords, name=st.none() | st.just("n")),
    st.builds(AIMessage, st.just([{"type": "text", "text": "x"}]), id=st.just("i")),
    st.builds(ToolMessage, st.text(max_size=5), tool_call_id=st.just("c"), artifact=plain),
    st.builds(lambda extra: SystemMessage("s", **extra), st.dictionaries(st.sampled_from("xy"), plain, max_size=2)),
)
uncopyable = st.builds(lambda: ToolMessage("t", tool_call_id="c", artifact=Note("n", ["tag"])))
values = st.lists(messages | plain | uncopyable, max_size=12)


def containers_in(value: Any) -> list[Any]:
    """All that can be changed and belongs to the value."""
    found, waiting = [], [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list | dict | set) or hasattr(one, "__dict__"):
            found.append(one)
            waiting += [inside for inside in gc.get_referents(one) if not isinstance(inside, type)]
    return found


@given(values, st.integers(0, 12), st.integers(0, 12))
def test_any_stretch_of_values_can_be_copied_any_number_of_times(kept: list[Any], first: int, length: int) -> None:
    codec = Codec(SaverTypes())
    encoded = codec.encode_each(kept)
    copies = Copies(kept, lambda number: codec.decode(encoded[number]))
    end = min(first + length, len(kept))
    first = min(first, end)
    taken = [copies.take(first, end), copies.take(first, end), copies.take(0, len(kept))[first:end]]
    for copied in taken:
        assert codec.encode_each(copied) == encoded[first:end]
        assert [*map(repr, copied)] == [*map(repr, kept[first:end])]
    everything = containers_in([*taken, kept])
    assert len(everything) == len({*map(id, everything)}), "something is in two places"


@given(messages)
def test_a_decoded_message_is_as_it_was_in_every_part(message: Any) -> None:
    codec = Codec(SaverTypes())
    [decoded] = codec.decode_joined([(1, codec.encode(message))])
    assert type(decoded) is type(message)
    assert list(decoded.__dict__.items()) == list(message.__dict__.items())
    assert decoded.__pydantic_fields_set__ == message.__pydantic_fields_set__
    assert decoded.__pydantic_extra__ == message.__pydantic_extra__
    assert decoded.__pydantic_private__ == message.__pydantic_private__


def test_what_can_not_be_copied_is_said_where_nothing_can_make_it_anew() -> None:
    with pytest.raises(KeyError):
        Copies([HumanMessage("h"), ToolMessage("t", tool_call_id="c", artifact=Note("n"))])


def test_each_element_of_edited_conversations_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    saver = HoldfastSaver.memory()
    said: list[Any] = [HumanMessage("x" * 600, id=f"{number}") for number in range(20)]
    where, given = config(), []
    for step in range(6):
        said = [*said[:step], *said[step + 1 :], AIMessage("y" * 600, id=f"s{step}")]
        given.append(said)
        where = put(saver, where, messages=said)
    decoded: list[int] = []
    decode = Codec.decode_joined

    def counted(self: Codec, pieces: Any) -> list[Any]:
        decoded.append(sum(count for count, _ in pieces))
        return decode(self, pieces)

    monkeypatch.setattr(Codec, "decode_joined", counted)
    found = [one.checkpoint["channel_values"]["messages"] for one in saver.list(config())]
    assert found == given[::-1]
    assert sum(decoded) == 20 + 6 - 1  # the first one was taken out before the first put
