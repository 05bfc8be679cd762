"""Shared decoding of listings: equal to the plain way, and no two checkpoints share anything that can be changed."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph_models import Note
from langgraph_savers import config, put

from holdfast.adapters.langgraph import shared_decode
from holdfast.adapters.langgraph.allowed_types import SaverTypes
from holdfast.adapters.langgraph.shared_decode import copy_value
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


edits = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 4), values), min_size=1, max_size=6)


@given(values, edits)
def test_a_listing_equals_the_plain_way(said: list[Any], edited: list[tuple[int, int, list[Any]]]) -> None:
    saver = HoldfastSaver.memory()
    codec, where, given = Codec(SaverTypes()), config(), []
    long = [HumanMessage("x" * 600, id=f"{number}") for number in range(10)]  # stored as a log of its elements
    for first, removed, added in [(0, 0, said), *edited]:
        long = [*long[:first], *added, *long[first + removed :], AIMessage("y" * 600)]
        given.append(long)
        where = put(saver, where, messages=long)
    shared = [*saver.list(config())]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_decode, "SHARE_FROM", 1000)
        plainly = [*saver.list(config())]
    assert [codec.encode(one.checkpoint) for one in shared] == [codec.encode(one.checkpoint) for one in plainly]
    assert [one._replace(checkpoint={}) for one in shared] == [one._replace(checkpoint={}) for one in plainly]
    found = [one.checkpoint["channel_values"]["messages"] for one in shared]
    assert [*map(codec.encode_each, found)] == [*map(codec.encode_each, given[::-1])]
    everything = containers_in(found)
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


@given(messages | plain)
def test_a_copy_is_as_its_original_in_every_part(value: Any) -> None:
    codec = Codec(SaverTypes())
    copy = copy_value(value)
    assert codec.encode(copy) == codec.encode(value)
    assert repr(copy) == repr(value)
    everything = containers_in([copy, value])
    assert len(everything) == len({*map(id, everything)}), "something is in two places"


def test_other_objects_are_not_copied() -> None:
    with pytest.raises(KeyError):
        copy_value(ToolMessage("t", tool_call_id="c", artifact=Note("n")))


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

    def counted(self: Codec, pieces: Any, *where: Any) -> list[Any]:
        decoded.append(sum(count for count, _ in pieces))
        return decode(self, pieces, *where)

    monkeypatch.setattr(Codec, "decode_joined", counted)
    found = [one.checkpoint["channel_values"]["messages"] for one in saver.list(config())]
    assert found == given[::-1]
    assert sum(decoded) == 20 + 6 - 1  # the first one was taken out before the first put
