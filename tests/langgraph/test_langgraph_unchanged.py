"""Messages that LangGraph hands over again: one that was changed in place is stored as it is now."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langgraph_savers import checkpoint, config, put, values_of

from holdfast.format.state import record
from holdfast.langgraph import HoldfastSaver


@pytest.fixture
def saver() -> HoldfastSaver:
    return HoldfastSaver.memory()  # what is remembered is the same on every store


def conversation(turns: int = 36) -> list[Any]:
    said: list[Any] = []
    for turn in range(turns):
        call = {"name": "search", "args": {"query": {"words": ["a", "b"]}}, "id": f"call-{turn}", "type": "tool_call"}
        usage = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
        said += [
            HumanMessage([{"type": "text", "text": "x" * 200}, "and more"], id=f"h{turn}"),
            AIMessage(
                "y" * 100,
                id=f"a{turn}",
                tool_calls=[call],
                usage_metadata=usage,
                additional_kwargs={"parsed": {"deep": [{"list": [1]}]}, "last": "z"},
                response_metadata={"model": {"name": "m", "logprobs": [[0.5]]}},
            ),
            ToolMessage("found", tool_call_id=f"call-{turn}", artifact={"rows": [1, 2]}, id=f"t{turn}"),
        ]
    return said


def rename(held: dict[str, Any], old: str, new: str) -> None:
    held[new] = held.pop(old)


CHANGES = {
    "the content is replaced": lambda said: setattr(said[0], "content", "other"),
    "the content is replaced by its like": lambda said: setattr(said[4], "content", "y" * 99 + "z"),
    "a part of the content is appended": lambda said: said[3].content.append("more"),
    "a part of the content changes": lambda said: said[3].content[0].update(text="less"),
    "a nested value of additional_kwargs": lambda said: (
        said[1].additional_kwargs["parsed"]["deep"][0]["list"].append(2)
    ),
    "a key of additional_kwargs": lambda said: rename(said[7].additional_kwargs, "last", "other"),
    "an argument of a tool call": lambda said: said[1].tool_calls[0]["args"]["query"]["words"].append("c"),
    "a tool call more": lambda said: said[10].tool_calls.append(
        {"name": "n", "args": {}, "id": "i", "type": "tool_call"}
    ),
    "response_metadata, deep inside": lambda said: said[100].response_metadata["model"]["logprobs"][0].append(1.0),
    "a number by its like of another type": lambda said: said[1].usage_metadata.update(input_tokens=True),
    "an id": lambda said: setattr(said[2], "id", "other"),
    "a field that was not set before": lambda said: setattr(said[2], "name", "tool"),
    "an attribute of its own": lambda said: setattr(said[5], "note", "mine"),
    "an artifact": lambda said: said[2].artifact["rows"].pop(),
    "another class": lambda said: said.__setitem__(4, AIMessageChunk(**said[4].model_dump(exclude={"type"}))),
    "all attributes at once": lambda said: object.__setattr__(
        said[4], "__dict__", {**said[4].__dict__, "content": "other"}
    ),
    "which fields were set": lambda said: said[4].__pydantic_fields_set__.discard("id"),
    "an argument of a tool call, renamed": lambda said: rename(said[1].tool_calls[0]["args"], "query", "asked"),
    "a part of the content is replaced": lambda said: said[3].content.__setitem__(1, "and less"),
    "the last one": lambda said: setattr(said[-1], "content", "lost"),
    "one is taken out": lambda said: said.pop(90),
    "two change places": lambda said: said.insert(3, said.pop(2)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_message_that_is_changed_in_place_is_stored_as_it_is_now(saver: HoldfastSaver, change: Any) -> None:
    said = conversation()
    first = put(saver, config(), messages=said)
    then = put(saver, first, messages=[*said, HumanMessage("next", id="n")])
    before = conversation()
    changed = [*said]
    change(changed)
    last = put(saver, then, messages=[*changed, HumanMessage("last", id="l")])
    expected = conversation()
    change(expected)
    assert values_of(saver, last)["messages"] == [*expected, HumanMessage("last", id="l")]
    assert [*map(repr, values_of(saver, last)["messages"])] == [*map(repr, [*expected, HumanMessage("last", id="l")])]
    assert [*map(type, values_of(saver, last)["messages"])] == [*map(type, [*expected, HumanMessage("last")])]
    assert values_of(saver, first)["messages"] == before
    assert values_of(saver, then)["messages"] == [*before, HumanMessage("next", id="n")]


def test_what_is_stored_is_the_same_as_without_memory() -> None:
    """Checksums don't depend on what a process remembers: the same puts make the same records."""
    remembering, forgetful = HoldfastSaver.memory(), HoldfastSaver.memory()
    said = conversation()
    given = [conversation(), conversation()]
    where = [config(), config()]
    for step in range(12):
        for number, saver in enumerate((remembering, forgetful)):
            forgetful._threads.ctx.memory.clear()
            messages = given[number]
            if step % 4 == 3:
                messages[step].content = f"changed at {step}"
            if step == 8:
                del messages[5]
            given[number] = messages = [*messages, HumanMessage(f"step {step}", id=f"s{step}"), said[step]]
            made = checkpoint(f"{step:04}", messages=messages, other=[1, 2])
            where[number] = saver.put(where[number], made, {"source": "loop", "step": step}, {})
            assert values_of(saver, where[number])["messages"] == messages
    kept = [stored_of(saver) for saver in (remembering, forgetful)]
    assert len(kept[0]) == 12
    assert kept[0] == kept[1]


def stored_of(saver: HoldfastSaver) -> list[Any]:
    """Of each checkpoint the digest of its content, its manifest, and the runs that this leads to."""
    found = []
    bridge = saver._threads.ctx.backend
    for entry in saver._run(saver._threads.entries(b"")):
        [kept] = saver._run(bridge.records([entry.checkpoint]))
        stored = record.unpack(saver._threads.ctx.codec, kept.data, expected_id=entry.checkpoint)
        manifest = stored.manifest()
        found.append((entry.id, stored.root, manifest, saver._run(bridge.segments(manifest.spans()))))
    return found
