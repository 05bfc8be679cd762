"""Real graphs on the saver: going on, going back, interrupts, crashes, both kinds of calls, many at once."""

from __future__ import annotations

import asyncio
import io
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt
from langgraph_savers import Steps, chat_graph, checkpoint, config, put, saver_on, values_of
from stores import Store, python

from holdfast import SyncClient
from holdfast.langgraph import HoldfastSaver, LangGraphAdapter


def test_a_conversation_goes_on_in_another_process_s_saver(store: Store) -> None:
    for turn in range(6):
        graph = chat_graph(saver_on(store))  # as after a restart: nothing is remembered
        graph.invoke({"messages": [HumanMessage(f"turn {turn}")]}, config())
    messages = graph.get_state(config()).values["messages"]
    assert [message.content for message in messages] == [
        text for turn in range(6) for text in (f"turn {turn}", f"reply {2 * turn + 1}")
    ]
    assert [type(message) for message in messages] == [HumanMessage, AIMessage] * 6
    assert store.client().verify().ok


def test_invoke_and_ainvoke_share_a_thread(store: Store) -> None:
    graph = chat_graph(saver_on(store))
    graph.invoke({"messages": [HumanMessage("sync")]}, config())

    async def more() -> Any:
        await graph.ainvoke({"messages": [HumanMessage("async")]}, config())
        return [state async for state in graph.aget_state_history(config())]

    history = asyncio.run(more())
    graph.invoke({"messages": [HumanMessage("sync again")]}, config())
    assert len(history) == 6
    assert len(graph.get_state(config()).values["messages"]) == 6
    assert len([*graph.get_state_history(config())]) == 9


def test_time_travel(store: Store) -> None:
    graph = chat_graph(saver_on(store))
    for text in ("a", "b"):
        graph.invoke({"messages": [HumanMessage(text)]}, config())
    past = next(state for state in graph.get_state_history(config()) if len(state.values["messages"]) == 2)
    forked = graph.update_state(past.config, {"messages": [HumanMessage("instead")]}, as_node="__start__")
    graph.invoke(None, forked)
    contents = [message.content for message in graph.get_state(config()).values["messages"]]
    assert contents == ["a", "reply 1", "instead", "reply 3"]
    assert store.client().verify().ok


def _approval_graph(saver: HoldfastSaver, ran: list[str]) -> Any:
    def draft(_: Steps) -> Any:
        ran.append("draft")
        return {"steps": ["drafted"]}

    def approve(_: Steps) -> Any:
        return {"steps": [f"answer: {interrupt({'question': 'send?'})}"]}

    builder = StateGraph(Steps)
    builder.add_node("draft", draft)
    builder.add_node("approve", approve)
    builder.add_edge(START, "draft")
    builder.add_edge("draft", "approve")
    builder.add_edge("approve", END)
    return builder.compile(checkpointer=saver)


def test_an_interrupt_is_answered_after_a_restart(store: Store) -> None:
    ran: list[str] = []
    _approval_graph(saver_on(store), ran).invoke({"steps": []}, config())
    graph = _approval_graph(saver_on(store), ran)
    state = graph.get_state(config())
    assert state.next == ("approve",)
    assert state.interrupts[0].value == {"question": "send?"}
    assert graph.invoke(Command(resume="yes"), config()) == {"steps": ["drafted", "answer: yes"]}
    assert ran == ["draft"]


def test_an_interrupt_survives_an_export(store: Store, memory_store: Store) -> None:
    ran: list[str] = []
    _approval_graph(saver_on(store), ran).invoke({"steps": []}, config())
    bundle = io.BytesIO()
    store.client().export(bundle)
    bundle.seek(0)
    other = SyncClient.memory()
    other.import_(bundle)
    graph = _approval_graph(HoldfastSaver(other), ran)
    assert graph.invoke(Command(resume="no"), config()) == {"steps": ["drafted", "answer: no"]}


def test_writes_that_came_before_their_checkpoint_are_exported_with_it(store: Store) -> None:
    saver = saver_on(store)
    for thread, ns in (("t", ""), ("t", "sub"), ("other", "")):
        made = checkpoint(x=1)
        where = config(thread, ns, made["id"])
        saver.put_writes(where, [("x", f"early in {thread}/{ns}")], "task 1")
        saver.put(config(thread, ns), made, {"source": "loop", "step": 1}, made["channel_versions"])
        saver.put_writes(where, [("x", "in time")], "task 2")
    saver.put_writes(config("t", "", "never put"), [("x", 1)], "task")
    bundle = io.BytesIO()
    store.client().export(bundle)
    bundle.seek(0)
    other = SyncClient.memory()
    other.import_(bundle)
    for thread, ns in (("t", ""), ("t", "sub"), ("other", "")):
        expected = saver.get_tuple(config(thread, ns)).pending_writes
        assert [write[2] for write in expected] == [f"early in {thread}/{ns}", "in time"]
        assert HoldfastSaver(other).get_tuple(config(thread, ns)).pending_writes == expected


def test_branches_of_a_fan_out_that_finished_do_not_run_again(store: Store) -> None:
    ran: list[int] = []
    fails = {2}

    def branch(state: Any) -> Any:
        if state["n"] in fails:
            # A branch has finished once its writes are kept: one that is still on its way when
            # another fails runs again.
            _wait_until(lambda: _branches_kept(saver_on(store)) == 3)
            raise RuntimeError("crash")
        ran.append(state["n"])
        return {"steps": [str(state["n"])]}

    def graph() -> Any:
        builder = StateGraph(Steps)
        builder.add_node("branch", branch)
        builder.add_conditional_edges(START, lambda _: [Send("branch", {"n": n}) for n in range(4)], ["branch"])
        return builder.compile(checkpointer=saver_on(store))

    with pytest.raises(RuntimeError, match="crash"):
        graph().invoke({"steps": []}, config(), durability="sync")
    fails.clear()
    assert sorted(ran) == [0, 1, 3]
    assert graph().invoke(None, config())["steps"] == ["0", "1", "2", "3"]
    assert sorted(ran) == [0, 1, 2, 3]


def _branches_kept(saver: HoldfastSaver) -> int:
    kept = saver.get_tuple(config())
    return len({task for task, channel, _ in kept.pending_writes or () if channel == "steps"}) if kept else 0


def _wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 240
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.slow
def test_a_kill_in_the_third_node_runs_the_first_two_once(disk_store: Store, tmp_path: Any) -> None:
    program = f"""
        import os, operator
        from typing import Annotated, TypedDict
        from langgraph.graph import START, StateGraph
        from holdfast.langgraph import HoldfastSaver

        class State(TypedDict):
            done: Annotated[list, operator.add]

        def node(name):
            def run(state):
                with open({str(tmp_path / "ran")!r}, "a") as log:
                    log.write(name)
                if name == "c" and len(open({str(tmp_path / "ran")!r}).read()) == 3:
                    os.kill(os.getpid(), 9)
                return {{"done": [name]}}
            return run

        builder = StateGraph(State)
        for name in "abc":
            builder.add_node(name, node(name))
        builder.add_edge(START, "a"); builder.add_edge("a", "b"); builder.add_edge("b", "c")
        graph = builder.compile(checkpointer=HoldfastSaver.from_url({disk_store.url!r}))
        config = {{"configurable": {{"thread_id": "t"}}}}
        going_on = graph.get_state(config).next
        print(graph.invoke(None if going_on else {{"done": []}}, config, durability="sync")["done"])
    """
    assert python(program, check=False).returncode == -9
    assert "['a', 'b', 'c']" in python(program).stdout
    assert (tmp_path / "ran").read_text() == "abcc"


def test_sixteen_threads_on_one_saver(store: Store) -> None:
    saver = saver_on(store)
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            where = config(f"t{number % 4}")
            for step in range(5):
                made = put(saver, where, {"source": "loop", "step": step, "by": number}, x=[number, step])
                saver.put_writes(made, [("x", step)], f"task {number}")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    found = list(saver.list(None))
    assert len(found) == 80
    assert all(len(one.pending_writes or ()) == 1 for one in found)
    assert store.client().verify().ok


def test_tasks_of_one_checkpoint_write_at_once(store: Store) -> None:
    saver = saver_on(store)

    async def scenario() -> Any:
        where = config(id_="1")
        await asyncio.gather(*(saver.aput_writes(where, [("x", n)], "same task") for n in range(8)))
        await asyncio.gather(*(saver.aput_writes(where, [("x", n)], f"task {n}") for n in range(8)))

    asyncio.run(scenario())
    made = put(saver, config(), x=1)
    assert made
    rows = list(store.backend().scan("lgwrites"))
    assert len(rows) == 9


def test_one_saver_serves_several_event_loops(store: Store) -> None:
    saver = saver_on(store)

    async def turn(number: int) -> None:
        await chat_graph(saver).ainvoke({"messages": [HumanMessage(str(number))]}, config())

    for number in range(3):
        asyncio.run(turn(number))
    assert len(values_of(saver, config())["messages"]) == 6


def test_it_opens_and_closes_in_every_way(tmp_path: Any) -> None:
    with HoldfastSaver.from_sqlite(tmp_path / "a.db") as saver:
        put(saver, config(), x=1)
    with HoldfastSaver.from_files(tmp_path / "files", durability="fast") as saver:
        put(saver, config(), x=2)

    async def scenario() -> Any:
        async with HoldfastSaver.from_url(f"sqlite:///{tmp_path}/a.db", agent_id="me") as saver:
            return (await saver.aget_tuple(config())).checkpoint["channel_values"]

    assert asyncio.run(scenario()) == {"x": 1}
    at_module_level = HoldfastSaver(SyncClient.sqlite(tmp_path / "a.db"))
    assert values_of(at_module_level, config()) == {"x": 1}

    async def through_a_sync_client() -> Any:
        return (await at_module_level.aget_tuple(config())).checkpoint["channel_values"]

    assert asyncio.run(through_a_sync_client()) == {"x": 1}


def test_a_time_to_live_applies(memory_store: Store) -> None:
    saver = saver_on(memory_store, ttl_seconds=0.000001)
    put(saver, config(), x=1)
    assert values_of(saver, config()) is None


def test_a_message_is_written_once_though_the_whole_list_is_put(sqlite_store: Store) -> None:
    def text(number: int) -> str:
        return random.Random(number).randbytes(500).hex()  # which nothing makes much smaller

    graph = chat_graph(saver_on(sqlite_store), reply=text)
    for turn in range(60):
        graph.invoke({"messages": [HumanMessage(text(-turn))]}, config())
    usage = sqlite_store.backend().usage()
    content = 60 * 2 * 1000
    # Once in the list, once as the input or the task's write, and some for each step. Whole states would take 45 times.
    assert usage.segment_bytes + usage.row_bytes + usage.record_bytes + usage.blob_bytes < 5 * content


def test_what_was_loaded_and_is_put_again_is_not_written_again(sqlite_store: Store) -> None:
    messages = [AIMessage(random.Random(number).randbytes(500).hex(), id=str(number)) for number in range(20)]
    messages[7].name = "set last"  # attributes are kept in another order than fields
    put(saver_on(sqlite_store), config(), messages=messages)
    before = sqlite_store.backend().usage()
    for number in range(3):
        saver = saver_on(sqlite_store)
        loaded = values_of(saver, config())["messages"]
        put(saver, config(), messages=[*loaded, HumanMessage("short", id=f"new {number}")])
    after = sqlite_store.backend().usage()
    assert after.segment_bytes - before.segment_bytes < 1000


def test_a_snapshot_by_hand(memory_store: Store) -> None:
    graph = chat_graph(saver_on(memory_store))
    graph.invoke({"messages": [HumanMessage("hi", id="1")]}, config("chat"))
    adapter = LangGraphAdapter()
    client = memory_store.client()
    snapshot = graph.get_state(config("chat"))
    extracted = adapter.extract(snapshot, agent_id="me", context={"user": 7})
    restored = client.restore(client.save_checkpoint(extracted))
    assert (restored.agent_id, restored.session_id, restored.framework) == ("me", "chat", "langgraph")
    assert restored.agent_context == {"user": 7}
    back = adapter.reconstruct(restored)
    assert back.values == snapshot.values
    assert [type(message) for message in back.values["messages"]] == [HumanMessage, AIMessage]
    assert back.next == snapshot.next == ()
    assert back.config["configurable"]["thread_id"] == "chat"
    other = chat_graph(saver_on(memory_store))
    other.update_state(config("copy"), back.values)
    assert other.get_state(config("copy")).values == snapshot.values
