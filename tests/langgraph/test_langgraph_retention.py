"""What of a thread ends, and when: time to live, keep_last, delete, and what gc then leaves of it."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.graph import START, StateGraph
from langgraph.graph.message import _messages_delta_reducer
from langgraph_savers import chat_graph, checkpoint, config, saver_on, values_of
from stores import Store

from holdfast import SyncClient
from holdfast.adapters.langgraph import row_keys
from holdfast.adapters.langgraph.retention import BATCH
from holdfast.errors import UsageError
from holdfast.langgraph import HoldfastSaver


class Clock:
    """A client whose time is ours."""

    def __init__(self, client: SyncClient) -> None:
        self.now_us = 1_700_000_000_000_000
        client._ctx.now_us = lambda: self.now_us

    def sleep(self, seconds: float) -> None:
        self.now_us += int(seconds * 1_000_000)


def rows_left(client: SyncClient) -> list[Any]:
    """Of the index, and of what tasks have written."""
    backend: Any = client._ctx.backend
    return [
        key for space in (row_keys.INDEX, row_keys.WRITES) for key, _ in HoldfastSaver(client)._run(backend.scan(space))
    ]


def talk(saver: HoldfastSaver, thread: str = "t", turns: int = 2) -> None:
    for turn in range(turns):
        chat_graph(saver).invoke({"messages": [HumanMessage(f"{turn}")]}, config(thread))


def test_nothing_is_left_of_a_thread_that_was_deleted(store: Store) -> None:
    client = store.client()
    saver = HoldfastSaver(client)
    talk(saver)
    talk(saver, "other")
    before = len(rows_left(client))
    saver.delete_thread("t")
    assert len(rows_left(client)) == before / 2
    client.gc()
    assert len(rows_left(client)) == before / 2
    assert {row_keys._first(key.key)[0] for key in rows_left(client)} == {"other"}


def test_nothing_is_left_of_checkpoints_whose_time_is_over(store: Store) -> None:
    client = store.client()
    clock = Clock(client)
    saver = HoldfastSaver(client, ttl_seconds=60)
    talk(saver)
    kept = HoldfastSaver(client)
    talk(kept, "for good")
    early = config("early", id_="0001")
    saver.put_writes(early, [("x", 1)], "a task that is quicker than its checkpoint")
    clock.sleep(61)
    assert saver.get_tuple(config()) is None
    client.gc()
    assert {row_keys._first(key.key)[0] for key in rows_left(client)} == {"for good", "early"}
    assert len(values_of(kept, config("for good"))["messages"]) == 4
    saver.put(config("early"), checkpoint("0001"), {"source": "loop", "step": 0}, {})
    found = saver.get_tuple(config("early"))
    assert found is not None
    assert found.pending_writes == [("a task that is quicker than its checkpoint", "x", 1)]
    clock.sleep(61)
    client.gc()
    assert {row_keys._first(key.key)[0] for key in rows_left(client)} == {"for good"}


def test_what_can_still_be_undone_keeps_its_rows(store: Store) -> None:
    client = store.client()
    saver = HoldfastSaver(client)
    talk(saver)
    before = rows_left(client)
    newest = client.timeline(agent_id="langgraph", session_id="lg/t")[0]
    client.expire(newest.checkpoint_id)
    assert rows_left(client) == before
    client.gc()
    assert len(rows_left(client)) < len(before)


def test_a_checkpoint_that_was_put_again_keeps_its_writes(store: Store) -> None:
    client = store.client()
    saver = HoldfastSaver(client)
    where = saver.put(config(), checkpoint("0001", x=1), {"source": "loop", "step": 0}, {})
    saver.put_writes(where, [("x", 1)], "task")
    [first] = client.timeline(agent_id="langgraph", session_id="lg/t")
    saver.put(config(), checkpoint("0001", x=2), {"source": "loop", "step": 0}, {})
    client.expire(first.checkpoint_id)
    client.gc()
    found = saver_on(store).get_tuple(config())
    assert found is not None
    assert found.checkpoint["channel_values"] == {"x": 2}
    assert found.pending_writes == [("task", "x", 1)]


def ids(saver: HoldfastSaver, thread: str = "t", ns: str = "") -> list[str]:
    return [found.checkpoint["id"] for found in saver.list(config(thread, ns))]


def grow(saver: HoldfastSaver, first: int, end: int, **values: Any) -> Any:
    where = config(id_=f"{first - 1:04}") if first else config()
    for number in range(first, end):
        where = saver.put(where, checkpoint(f"{number:04}", **values), {"source": "loop", "step": number}, {})
        saver.put_writes(where, [("x", number)], f"task {number}")
    return where


def test_of_each_thread_the_last_ones_are_kept(store: Store) -> None:
    client = store.client()
    saver = HoldfastSaver(client, keep_last=5)
    for number in range(100):
        where = config() if number == 0 else config(id_=f"{number - 1:04}")
        saver.put(where, checkpoint(f"{number:04}", x=number), {"source": "loop", "step": number}, {})
        kept = ids(saver)
        assert kept[:5] == [f"{one:04}" for one in range(number, -1, -1)][:5]
        assert len(kept) <= 5 + BATCH
    assert len(ids(saver)) < 100
    grow(HoldfastSaver(client), 100, 103, y=1)  # one that keeps all
    assert len(ids(saver)) > 5
    client.gc()
    assert len(rows_left(client)) == len(ids(saver)) + 3
    assert client.verify().ok


def test_who_opens_a_long_thread_shortens_it_with_the_first_puts(store: Store) -> None:
    client = store.client()
    grow(HoldfastSaver(client), 0, 3 * BATCH)
    saver = HoldfastSaver(client, keep_last=4)
    grow(saver, 3 * BATCH, 3 * BATCH + 1)
    assert ids(saver) == [f"{number:04}" for number in range(3 * BATCH, 3 * BATCH - 4, -1)]
    found = saver.get_tuple(config(id_=f"{3 * BATCH - 1:04}"))
    assert found is not None
    assert found.pending_writes == [(f"task {3 * BATCH - 1}", "x", 3 * BATCH - 1)]


def test_namespaces_are_kept_each_on_its_own(store: Store) -> None:
    saver = saver_on(store, keep_last=2)
    saver.put(config(ns="inner"), checkpoint("0000"), {"source": "loop", "step": 0}, {})
    grow(saver, 0, BATCH + 5)
    assert ids(saver, ns="inner") == ["0000"]


def test_what_is_pinned_is_kept_and_found(store: Store) -> None:
    client = store.client()
    saver = HoldfastSaver(client, keep_last=2)
    grow(saver, 0, 1)
    [first] = client.timeline(agent_id="langgraph", session_id="lg/t")
    client.pin(first.checkpoint_id)
    grow(saver, 1, 2 * BATCH)
    assert ids(saver)[-1] == "0000"
    assert len(ids(saver)) <= 2 + BATCH + 1


def test_keep_last_must_be_a_number(store: Store) -> None:
    for wrong in (0, -1, 1.5, True, "3"):
        with pytest.raises(UsageError, match="keep_last"):
            saver_on(store, keep_last=wrong)


class Delta(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer, snapshot_frequency=10)]


def delta_graph(saver: Any) -> Any:
    builder = StateGraph(Delta)
    builder.add_node("answer", lambda state: {"messages": [AIMessage("a", id=f"a{len(state['messages'])}")]})
    builder.add_edge(START, "answer")
    return builder.compile(checkpointer=saver)


@pytest.mark.slow
def test_what_delta_channels_are_made_from_is_kept(store: Store) -> None:
    client = store.client()
    keeping, short = HoldfastSaver(client), HoldfastSaver(client, keep_last=3)
    for turn in range(25):
        for saver, thread in ((keeping, "all"), (short, "short")):
            delta_graph(saver).invoke({"messages": [HumanMessage("h", id=f"h{turn}")]}, config(thread))
        states = [
            delta_graph(saver).get_state(config(thread)) for saver, thread in ((keeping, "all"), (short, "short"))
        ]
        assert states[0].values == states[1].values
        assert len(states[0].values["messages"]) == 2 * turn + 2
    assert len(ids(short, "short")) < len(ids(keeping, "all")) - BATCH
    latest = [*delta_graph(short).get_state_history(config("short"), limit=3)]
    expected = [*delta_graph(keeping).get_state_history(config("all"), limit=3)]
    assert [one.values for one in latest] == [one.values for one in expected]
    client.gc()
    assert delta_graph(short).get_state(config("short")).values == states[0].values


def test_a_delta_channel_outlives_the_checkpoints_it_is_made_from(store: Store) -> None:
    client = store.client()
    clock = Clock(client)
    saver = HoldfastSaver(client, ttl_seconds=60)
    graph = delta_graph(saver)
    for turn in range(8):  # for longer than the first ones live, without a snapshot for most of it
        graph.invoke({"messages": [HumanMessage("h", id=f"h{turn}")]}, config())
        clock.sleep(20)
        client.gc()
        assert len(graph.get_state(config()).values["messages"]) == 2 * turn + 2
    assert len(delta_graph(HoldfastSaver(client)).get_state(config()).values["messages"]) == 16
    clock.sleep(61)
    assert saver.get_tuple(config()) is None
    client.gc()
    assert rows_left(client) == []
    assert client.stats().checkpoints == 0


def test_without_delta_channels_each_checkpoint_ends_on_its_own(store: Store) -> None:
    client = store.client()
    clock = Clock(client)
    saver = HoldfastSaver(client, ttl_seconds=60)
    for number in range(5):
        where = config() if number == 0 else config(id_=f"{number - 1:04}")
        saver.put(where, checkpoint(f"{number:04}", x=number), {"source": "loop", "step": number}, {})
        clock.sleep(20)
    assert ids(saver) == ["0004", "0003"]
