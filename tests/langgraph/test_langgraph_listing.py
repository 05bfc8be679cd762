"""Listings: what their checkpoints share is read and decoded once, and each is the caller's own all the same."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph_savers import chat_graph, checkpoint, config, put, saver_on, values_of
from stores import Store

from holdfast.errors import CorruptError
from holdfast.langgraph import HoldfastSaver

LONG = "x" * 400


def message(number: int) -> Any:
    if number % 3 == 0:
        return HumanMessage([{"type": "text", "text": f"{number} {LONG}"}], id=f"m{number}")
    if number % 3 == 1:
        call = {"name": "search", "args": {"words": [number]}, "id": f"c{number}", "type": "tool_call"}
        return AIMessage(LONG, id=f"m{number}", tool_calls=[call], response_metadata={"deep": {"list": [number]}})
    return ToolMessage(LONG, tool_call_id="c", artifact={"rows": [number]}, id=f"m{number}", note="extra")


def filled(saver: HoldfastSaver, steps: int = 30) -> list[list[Any]]:
    """Puts a conversation that grows, and is edited once; what was put, newest first."""
    said: list[Any] = []
    given: list[list[Any]] = []
    where = config()
    for step in range(steps):
        said = [*said, message(2 * step), message(2 * step + 1)]
        if step == 12:
            said = [*said[:3], message(1000), *said[4:]]
        made = checkpoint(f"{step:04}", messages=said, rows=[{"n": [number]} for number in range(step)])
        where = saver.put(where, made, {"source": "loop", "step": step}, {})
        given.insert(0, said)
    return given


def test_each_has_what_was_put(store: Store) -> None:
    given = filled(saver_on(store))
    saver = saver_on(store)  # one that has put nothing
    found = list(saver.list(config()))
    assert [one.checkpoint["channel_values"]["messages"] for one in found] == given
    assert [[*map(repr, one.checkpoint["channel_values"]["messages"])] for one in found] == [
        [*map(repr, said)] for said in given
    ]
    assert [values_of(saver, one.config) for one in found] == [one.checkpoint["channel_values"] for one in found]


def test_a_listing_is_the_same_in_an_event_loop(store: Store) -> None:
    saver = saver_on(store)
    filled(saver)

    async def scenario() -> list[Any]:
        return [one async for one in saver.alist(config(), limit=20)]

    assert asyncio.run(scenario()) == list(saver.list(config(), limit=20))


def test_what_a_caller_changes_in_one_shows_in_no_other(store: Store) -> None:
    saver = saver_on(store)
    given = filled(saver)
    found = saver.list(config())
    first = next(found)
    said = first.checkpoint["channel_values"]["messages"]
    said[0].content[0]["text"] = "changed"
    said[1].tool_calls[0]["args"]["words"].append("changed")
    said[1].response_metadata["deep"]["list"].clear()
    said[2].artifact["rows"].append("changed")
    said[2].note = "changed"
    said[4].additional_kwargs["new"] = 1
    said.pop()
    assert [one.checkpoint["channel_values"]["messages"] for one in found] == given[1:]
    assert values_of(saver, config())["messages"] == given[0]


def test_what_a_caller_changes_of_the_latest_is_not_stored_nor_read_again(store: Store) -> None:
    saver = saver_on(store)
    given = filled(saver)
    taken = values_of(saver, config())["messages"]
    taken[1].response_metadata["deep"]["list"].append("changed")
    taken[5].content = "changed"
    again = values_of(saver, config())["messages"]
    assert again == given[0]
    given[0][0].content[0]["text"] = "changed after it was put"
    assert values_of(saver, config())["messages"][0].content[0]["text"] == f"0 {LONG}"


def test_elements_that_can_not_be_copied_are_decoded_for_each(store: Store) -> None:
    saver = saver_on(store)
    queues = [deque([LONG, number]) for number in range(20)]
    where = put(saver, config(), queues=queues)
    put(saver, where, queues=[*queues, deque([1])])
    first, second = saver_on(store).list(config())
    first.checkpoint["channel_values"]["queues"][0].append("changed")
    assert second.checkpoint["channel_values"]["queues"] == queues
    assert values_of(saver, config())["queues"][0] == queues[0]


def test_a_page_costs_a_few_reads(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    saver = saver_on(store)
    filled(saver)
    spans: list[Any] = []
    backend: Any = saver._threads.ctx.backend
    read = backend.segments

    def counted(wanted: Any) -> Any:
        spans.append(list(wanted))
        return read(wanted)

    monkeypatch.setattr(backend, "segments", counted)
    assert len(list(saver.list(config(), limit=20))) == 20
    assert len(spans) == 1
    assert len({span.log for span in spans[0]}) <= 4  # messages, rows, what they were before the edit, skeletons


def test_a_damaged_element_is_noticed_in_every_checkpoint_that_has_it() -> None:
    saver = HoldfastSaver.memory()
    filled(saver)
    backend: Any = saver._threads.ctx.backend
    damaged = 0
    for runs in backend.backend._segments.values():
        for number, run in enumerate(runs):
            place = run.data.rfind(LONG.encode())
            if place > 0:
                runs[number] = run._replace(data=run.data[:place] + b"y" + run.data[place + 1 :])
                damaged += 1
    assert damaged
    with pytest.raises(CorruptError):
        list(saver.list(config()))


def test_a_listing_may_be_left(store: Store) -> None:
    saver = saver_on(store)
    graph = chat_graph(saver)
    for number in range(3):
        graph.invoke({"messages": [HumanMessage(f"{number}")]}, config())
    assert next(iter(saver.list(config(), limit=1))).metadata["step"] == 7
    for found in saver.list(config()):
        assert saver.get_tuple(found.config) == found  # reading in between is no matter
        break
