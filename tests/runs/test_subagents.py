"""Sub-agents: runs within a run, whose traces are saved and restored with it."""

from __future__ import annotations

import asyncio

import pytest
from stores import Store

from holdfast import SyncClient


def research(run, world: list[str], *, fails: bool = False) -> None:
    with run.subagent("researcher", prompt={"q": "kelp"}, subagent_id="r-1", parent_tool_call_id="call-7") as agent:
        agent.step("search", world.append, "search")
        agent.effect("mail", world.append, "mail", kind="reversible")
        if fails:
            raise ValueError("nothing found")
        agent.add_usage({"tokens": 10})
        agent.add_usage({"tokens": 5, "calls": 1})
        agent.result = ["found"]


def test_the_trace_is_kept_in_the_checkpoints_and_restored_with_them(store: Store):
    world: list[str] = []
    with store.client().run("s") as run:
        research(run, world)
    client = store.client()
    for _ in range(2):
        with client.run("s") as run:
            assert not run._core.journal.get("x")
            [trace] = run.traces
            assert (trace.subagent_id, trace.subagent_type, trace.parent_tool_call_id) == (
                "r-1",
                "researcher",
                "call-7",
            )
            assert (trace.prompt, trace.result, trace.success, trace.error) == ({"q": "kelp"}, ["found"], True, None)
            assert trace.usage == {"tokens": 15, "calls": 1}
            assert [call.name for call in trace.tool_calls] == ["search", "mail"]
            assert trace.tool_calls[1].effect_id == client.effects("s")[0].effect_id
            assert trace.started_at <= trace.tool_calls[0].started_at <= trace.tool_calls[0].ended_at <= trace.ended_at
            research(run, world)
            assert len(run.traces) == 1
    assert world == ["search", "mail"]


def test_a_rollback_takes_the_trace_back(client: SyncClient):
    with client.run("s") as run:
        before = run.save("before")
        research(run, [])
        with_it = run.traces
    assert client.traces("s") == with_it
    client.rollback("s", before)
    with client.run("s") as run:
        assert run.traces == ()
    assert client.traces("s") == client.traces(before) == ()


def test_traces_are_read_from_any_checkpoint_while_somebody_else_runs(store: Store):
    client = store.client()
    with client.run("s") as run:
        research(run, [])
        assert store.client().traces(run.checkpoint_id) == run.traces
    plain = client.save("agent", session_id="t", execution_state={}, context=["no run"])
    assert client.traces(plain) == ()

    async def awaited() -> object:
        async with store.async_client() as other:
            return await other.traces("s")

    known = client.traces("s")
    assert asyncio.run(awaited()) == known


def test_one_that_failed_says_so_and_is_tried_again(client: SyncClient):
    world: list[str] = []
    with pytest.raises(ValueError), client.run("s") as run:
        research(run, world, fails=True)
    with client.run("s") as run:
        [trace] = run.traces
        assert (trace.success, trace.error) == (False, "builtins.ValueError: nothing found")
        research(run, world)
        [trace] = run.traces
        assert (trace.success, trace.error) == (True, None)
    assert world == ["search", "mail"]


def test_steps_of_the_same_name_are_told_apart_by_who_makes_them(client: SyncClient):
    for _ in range(2):
        with client.run("s") as run:
            results = [run.step("look", lambda: "run")]
            for n in range(2):
                with run.subagent("worker") as agent:
                    results.append(agent.step("look", lambda n=n: f"worker {n}"))
                    with agent.subagent("worker") as inner:
                        results.append(inner.step("look", lambda n=n: f"inner {n}"))
            assert results == ["run", "worker 0", "inner 0", "worker 1", "inner 1"]
            assert [len(trace.tool_calls) for trace in run.traces] == [1, 1, 1, 1]


def test_one_that_is_over_need_not_be_begun_again(client: SyncClient):
    with client.run("s") as run, run.subagent("worker") as agent:
        agent.result = 5
    with client.run("s") as run, run.subagent("worker") as agent:
        assert (agent.is_over, agent.result) == (True, 5)


def test_parallel_and_awaited(store: Store):
    async def work(run, n: int) -> int:
        async with run.subagent("worker", subagent_id=f"w{n}") as agent:
            agent.result = await agent.step("double", lambda: 2 * n)
            return agent.result

    async def program() -> None:
        async with store.async_client() as client:
            for _ in range(2):
                async with client.run("s") as run:
                    assert await asyncio.gather(*[work(run, n) for n in range(5)]) == [0, 2, 4, 6, 8]
                    assert sorted(trace.result for trace in run.traces) == [0, 2, 4, 6, 8]

    asyncio.run(program())
