"""Calls in a step, an effect or a task are recorded under it; a finished parent skips them."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from stores import Store

from holdfast import Client, SyncClient, SyncRun


class Died(Exception):  # noqa: N818 - the program dies of it
    pass


@pytest.mark.parametrize("dies_in", ["a", "b", "c"])
def test_steps_of_one_name_are_those_of_their_tasks(client: SyncClient, dies_in: str):
    edited: list[str] = []

    def edit(path: str) -> str:
        edited.append(path)
        return f"edited {path}"

    def program(dies_in: str | None) -> dict[str, Any]:
        came_to = {}
        with client.run("s") as run:
            for task in run.tasks("files", ["a", "b", "c"]):
                came_to[task.id] = run.step("edit", edit, task.id)
                if task.id == dies_in:
                    raise Died
            return came_to

    with pytest.raises(Died):
        program(dies_in)
    came_to = program(None)
    assert all(result == f"edited {id_}" for id_, result in came_to.items())
    assert next(iter(came_to)) == dies_in
    assert edited == ["a", "b", "c"]


def test_equal_effects_of_tasks_are_one_for_each(client: SyncClient):
    sent = []

    def program(dies_in: str | None) -> None:
        with client.run("s") as run:
            for task in run.tasks("teams", ["a", "b", "c"]):
                run.effect("mail", sent.append, "all")
                if task.id == dies_in:
                    raise Died

    with pytest.raises(Died):
        program("b")
    program(None)
    assert sent == ["all"] * 3


def test_awaited_tasks_have_steps_of_their_own(store: Store):
    async def program(client: Client, dies_in: str | None) -> list[str]:
        async with client.run("s") as run:
            found = []
            async for task in run.tasks("files", ["a", "b"]):
                found.append(await run.step("edit", lambda id_=task.id: f"edited {id_}"))
                if task.id == dies_in:
                    raise Died
            found.append(await run.step("edit", lambda: "the list is done"))
            return found

    async def both_lives() -> None:
        async with store.async_client() as client:
            with pytest.raises(Died):
                await program(client, "b")
            assert await program(client, None) == ["edited b", "the list is done"]

    asyncio.run(both_lives())


@pytest.mark.parametrize("inner", ["step", "effect"])
@pytest.mark.parametrize("outer", ["step", "effect"])
def test_a_call_behind_is_not_taken_for_one_inside(client: SyncClient, outer: str, inner: str):
    carried_out = []

    def ask(run: SyncRun, what: str) -> object:
        return getattr(run, inner)("ask", lambda: carried_out.append(what) or what)

    def program(*, dies: bool) -> object:
        with client.run("s") as run:
            assert getattr(run, outer)("plan", lambda: ask(run, "inside")) == "inside"
            if dies:
                raise Died
            return ask(run, "behind")

    with pytest.raises(Died):
        program(dies=True)
    assert program(dies=False) == "behind"
    assert program(dies=False) == "behind"
    assert carried_out == ["inside", "behind"]


def test_what_is_inside_is_replayed_if_what_is_around_it_was_cut_off(client: SyncClient):
    called = []

    def body(run: SyncRun, *, dies: bool) -> str:
        first = run.step("ask", lambda: called.append("ask") or "yes")
        if dies:
            raise Died
        return first

    for dies in (True, False):
        try:
            with client.run("s") as run:
                assert run.step("plan", body, run, dies=dies) == "yes"
        except Died:
            assert dies
    assert called == ["ask"]


def test_behind_a_loop_that_was_left_a_call_is_the_runs_own(quick: SyncClient):
    def program(leave_at: str | None) -> str:
        with quick.run("s") as run:
            tasks = run.tasks("files", ["a", "b"])
            try:
                for task in tasks:
                    if task.id == leave_at:
                        raise Died
            except Died:
                pass
            if leave_at is not None:
                assert tasks.status(leave_at) == "in_progress"
            return run.step("report", lambda: f"left at {leave_at}")

    assert program("b") == "left at b"
    assert program(None) == "left at b"  # the same step


def test_a_task_that_a_loop_was_left_in_is_given_again(quick: SyncClient):
    with quick.run("s") as run:
        tasks = run.tasks("files", ["a", "b"])
        for _ in tasks:
            break
        assert tasks.status("a") == "in_progress"
        assert [task.id for task in tasks] == ["a", "b"]


def test_of_two_who_share_the_tasks_none_ends_the_others(quick: SyncClient):
    with quick.run("s") as run:
        tasks = run.tasks("files", ["a", "b", "c", "d"])
        first, second = iter(tasks), iter(tasks)
        assert next(first).id == "a"
        assert [task.id for task in second] == ["b", "c", "d"]
        assert tasks.status("a") == "in_progress"
        del first  # whoever was at it has died
        assert [task.id for task in tasks] == ["a"]


def test_threads_that_share_the_tasks_do_each_once(quick: SyncClient):
    done: list[tuple[str, object]] = []

    def work(run: SyncRun, tasks: Any) -> None:
        done.extend((task.id, run.step("edit", lambda id_=task.id: id_)) for task in tasks)

    with quick.run("s") as run:
        tasks = run.tasks("files", [str(n) for n in range(50)])
        threads = [threading.Thread(target=work, args=(run, tasks)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(done) == sorted((str(n), str(n)) for n in range(50))


def test_sub_agents_are_inside_of_what_they_were_begun_in(client: SyncClient):
    def program(*, dies: bool) -> object:
        with client.run("s") as run:
            for task in run.tasks("files", ["a", "b"]):
                with run.subagent("reader", prompt=task.id) as reader:
                    reader.result = reader.step("read", lambda id_=task.id: f"read {id_}")
                if dies and task.id == "a":
                    raise Died
            with run.subagent("reader", prompt="all") as reader:
                return reader.step("read", lambda: "read all")

    with pytest.raises(Died):
        program(dies=True)
    assert program(dies=False) == "read all"
    traces = client.traces(client.latest(session_id="s").checkpoint_id)
    assert [(trace.prompt, trace.result, [call.name for call in trace.tool_calls]) for trace in traces] == [
        ("a", "read a", ["read"]),
        ("b", "read b", ["read"]),
        ("all", None, ["read"]),
    ]


def test_a_sub_agents_trace_has_what_it_called_inside_of_tasks_and_steps_of_others(quick: SyncClient):
    with quick.run("s") as run, run.subagent("reader") as reader:
        for task in run.tasks("files", ["a", "b"]):
            reader.step("read", lambda id_=task.id: id_)
        reader.step("sum up", lambda: reader.step("count", lambda: 2))
        with reader.subagent("helper") as helper:
            helper.step("help", lambda: 1)
    traces = {trace.subagent_type: [call.name for call in trace.tool_calls] for trace in run.traces}
    assert traces["reader"] == ["read", "read", "count", "sum up"]
    assert traces["helper"] == ["help"]


def test_what_a_sub_agent_used_is_counted_once_however_often_it_was_begun(client: SyncClient):
    def program(*, dies: bool) -> None:
        with client.run("s") as run, run.subagent("reader") as reader:
            reader.add_usage(reader.step("ask", lambda: {"tokens": 10}))
            if dies:
                raise Died

    for dies in (True, True, False):
        try:
            program(dies=dies)
        except Died:
            assert dies
    [trace] = client.traces(client.latest(session_id="s").checkpoint_id)
    assert trace.usage == {"tokens": 10}


def test_runs_inside_of_each_other_are_not_taken_for_one_another(quick: SyncClient):
    with quick.run("outer") as outer:

        def body() -> tuple[object, object]:
            with quick.run("inner") as inner:
                return inner.step("ask", lambda: outer.step("ask", lambda: 1)), inner.step("ask", lambda: 2)

        assert outer.step("plan", body) == (1, 2)
    with quick.run("inner") as inner:
        assert inner.step("ask", lambda: 3) == 1


def test_a_session_of_the_first_version_goes_on_as_it_began(quick: SyncClient):
    """Its steps inside of others are known by the run alone, and stay so."""

    def body(run: SyncRun) -> object:
        return run.step("ask", lambda: "inside")

    with quick.run("s") as run:
        run._core.journal.version = 1
        run.step("plan", body, run)
    kept = quick.latest(session_id="s").agent_context["holdfast.run"]
    assert kept["v"] == 1
    assert [entry[0] for entry in kept["steps"]] == ["agent/ask#0", "agent/plan#0"]
    with quick.run("s") as run:
        assert run.step("ask", lambda: "behind") == "inside"
        run.step("more", lambda: run.step("less", lambda: 1))
    assert quick.latest(session_id="s").agent_context["holdfast.run"]["v"] == 1
