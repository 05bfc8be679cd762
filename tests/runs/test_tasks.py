"""Tasks: each is done once, in the order of what they depend on, and a resume goes on at the first incomplete one."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stores import Store

from holdfast import SyncClient, UsageError
from holdfast.model import task as pure
from holdfast.model.task import Agenda, TaskStatus


class Died(Exception):  # noqa: N818 - the program dies of it
    pass


def test_a_resume_goes_on_at_the_first_incomplete_one(store: Store):
    begun, done = [], []
    for dies_at in (2, 5, None):
        try:
            with store.client().run("s") as run:
                for task in run.tasks("files", range(8)):
                    begun.append(task.id)
                    if task.item == dies_at:
                        raise Died
                    done.append(task.id)
        except Died:
            continue
    assert done == [str(n) for n in range(8)]
    assert begun == ["0", "1", "2", "2", "3", "4", "5", "5", "6", "7"]
    with store.client().run("s") as run:
        assert list(run.tasks("files", range(8))) == []


def test_progress_is_part_of_the_checkpoints(client: SyncClient):
    with client.run("s") as run:
        for task in run.tasks("files", ["a", "b", "c", "d"]):
            if task.id == "b":
                task.fail("no such file")
            elif task.id == "c":
                task.skip()
                run.save("here")
    middle, end = client.timeline(session_id="s", limit=None)[-3], client.timeline(session_id="s", limit=None)[0]
    assert middle.tasks == {
        "files": {"total": 4, "completed": 1, "failed": 1, "in_progress": 1, "pending": 1, "current": ["c"]}
    }
    assert end.tasks["files"] == {"total": 4, "completed": 2, "failed": 1, "skipped": 1, "current": []}
    with client.run("s") as run:
        files = run.tasks("files", ["a", "b", "c", "d"])
        assert files.statuses == {"a": "completed", "b": "failed", "c": "skipped", "d": "completed"}
        assert files.note("b") == "no such file"


def test_dependencies_decide_the_order_and_failures_skip_what_depends_on_them(client: SyncClient):
    done = []
    depends = {"ship": ["pack"], "pack": ["pay"], "tell": ["ship"], "pay": []}
    with client.run("s") as run:
        orders = run.tasks("order", ["tell", "ship", "pack", "pay", "other"], depends=depends)
        for task in orders:
            done.append(task.id)
            if task.id == "pack":
                task.fail("no box")
    assert done == ["pay", "pack", "other"]
    assert orders.statuses == {
        "tell": "skipped", "ship": "skipped", "pack": "failed", "pay": "completed", "other": "completed",
    }  # fmt: skip
    assert orders.note("ship") == "depends on pack, which failed"
    with client.run("s") as run:
        again = [task.id for task in run.tasks("order", list(orders.statuses), depends=depends, retry_failed=True)]
    assert again == ["pack", "ship", "tell"]


def test_tasks_that_are_added_or_gone_later(client: SyncClient):
    with client.run("s") as run:
        for _ in run.tasks("files", ["a", "b"]):
            pass
    with client.run("s") as run:
        assert [task.id for task in run.tasks("files", ["new", "b", "newer"])] == ["new", "newer"]


def test_items_are_known_by_their_ids(client: SyncClient):
    class Thing:
        id = 7

    for items, options in (([{"id": "x"}, Thing()], {}), ([["x"], ["7"]], {"key": lambda item: item[0]})):
        with client.run("s") as run:
            todo = [task.id for task in run.tasks("things", items, **options)]
    assert todo == []
    assert client.latest(session_id="s").tasks["things"]["completed"] == 2


def test_steps_of_a_task_are_replayed_when_it_is_begun_again(store: Store):
    edited = []
    for dies in (True, False):
        try:
            with store.client().run("s") as run:
                for task in run.tasks("files", ["a", "b"]):
                    run.step(f"edit:{task.id}", edited.append, task.id)
                    if dies:
                        raise Died
                    assert task.attempts == (2 if task.id == "a" else 1)
        except Died:
            continue
    assert edited == ["a", "b"]


def test_awaited(store: Store):
    async def program() -> list[str]:
        async with store.async_client() as client, client.run("s") as run:
            return [task.id async for task in run.tasks("files", ["a", "b"])]

    assert asyncio.run(program()) == ["a", "b"]


@pytest.mark.parametrize(
    ("items", "options"),
    [
        (["a", "a"], {}),
        ([object()], {}),
        ([True], {}),
        (["a"], {"depends": {"a": ["b"]}}),
        (["a", "b"], {"depends": {"a": ["b"], "b": ["a"]}}),
        (["a"], {"depends": {"a": ["a"]}}),
    ],
)
def test_what_can_not_be_right_is_refused(quick: SyncClient, items, options):
    with quick.run("s") as run, pytest.raises(UsageError):
        run.tasks("x", items, **options)


class Plainly:
    """What `Agenda` has to say, looked up among all tasks each time."""

    def __init__(self, needed: dict[str, tuple[str, ...]], status: dict[str, TaskStatus]) -> None:
        self.needed = needed
        self.status = dict.fromkeys(needed, TaskStatus.PENDING) | status

    def next(self) -> str | None:
        able = [
            id_
            for id_, of in self.needed.items()
            if not self.status[id_].is_over and all(self.status[one] is TaskStatus.COMPLETED for one in of)
        ]
        return min(able, key=lambda id_: self.status[id_] is not TaskStatus.IN_PROGRESS, default=None)

    def hopeless(self) -> set[str]:
        lost = {id_ for id_, now in self.status.items() if now in (TaskStatus.FAILED, TaskStatus.SKIPPED)}
        found: set[str] = set()
        for _ in self.needed:
            found |= {
                id_ for id_, of in self.needed.items() if not self.status[id_].is_over and (lost | found) & set(of)
            }
        return found

    def summary(self) -> dict[str, object]:
        counted = {str(one): list(self.status.values()).count(one) for one in TaskStatus}
        current = [id_ for id_ in self.needed if self.status[id_] is TaskStatus.IN_PROGRESS]
        return {"total": len(self.needed), **{one: n for one, n in counted.items() if n}, "current": current[:5]}


@given(st.data())
def test_whatever_becomes_of_them_every_task_ends_and_none_before_what_it_depends_on(data):
    count = data.draw(st.integers(0, 8))
    ids = [str(n) for n in range(count)]
    needed = {
        str(n): tuple(data.draw(st.sets(st.sampled_from(ids[n + 1 :])))) if n + 1 < count else () for n in range(count)
    }
    assert pure.dependencies(ids, ids, needed) == needed
    before = data.draw(st.dictionaries(st.sampled_from(ids), st.sampled_from(TaskStatus))) if ids else {}
    agenda, plain = Agenda(needed, before), Plainly(needed, before)

    def marked(id_: str, status: TaskStatus) -> None:
        agenda.set(id_, status)
        plain.status[id_] = status

    def skipped() -> None:
        hopeless = agenda.find_hopeless()
        assert hopeless.keys() == plain.hopeless()
        for id_, why in hopeless.items():
            assert why.startswith("depends on ")
            marked(id_, TaskStatus.SKIPPED)

    skipped()
    while (id_ := agenda.next()) is not None:
        assert id_ == plain.next()
        if data.draw(st.booleans()):
            marked(id_, TaskStatus.IN_PROGRESS)
            assert (agenda.next(), agenda.summary()) == (plain.next(), plain.summary())
        marked(id_, data.draw(st.sampled_from(TaskStatus)))
        if agenda.status(id_).is_over:
            skipped()
        else:
            marked(id_, TaskStatus.COMPLETED)
    assert plain.next() is None
    assert all(agenda.status(id_).is_over for id_ in ids)
    assert agenda.summary() == plain.summary()


def test_what_is_added_later_and_depends_on_what_failed_is_skipped_not_forgotten(client: SyncClient):
    with client.run("s") as run:
        for task in run.tasks("x", ["a"]):
            task.fail("no")
    with client.run("s") as run:
        later = run.tasks("x", ["a", "b", "c"], depends={"b": ["a"], "c": ["b"]})
        assert list(later) == []
        assert (later.status("c"), later.note("b")) == (TaskStatus.SKIPPED, "depends on a, which failed")
    assert client.latest(session_id="s").tasks["x"] == {"total": 3, "failed": 1, "skipped": 2, "current": []}


def test_a_sub_agents_list_of_the_same_name_is_told_beside_the_runs(client: SyncClient):
    with client.run("s") as run:
        for _ in run.tasks("files", ["a", "b"]):
            for _ in run.tasks("files", ["inside of a task, and told as long as it is under way"]):
                run.save()
                told = client.latest(session_id="s").tasks
                assert [one for one in told if one != "files"] == [f"files//{told['files']['current'][0]}/files"]
        with run.subagent("reader") as reader:
            list(reader.tasks("files", ["page"]))
    tasks = client.latest(session_id="s").tasks
    assert {name: one["completed"] for name, one in tasks.items()} == {
        "files": 2,
        "reader#0/files": 1,
    }


def test_a_tasks_cost_does_not_grow_with_how_many_there_are():
    looked = 0

    class Counted(dict):
        def __getitem__(self, key):
            nonlocal looked
            looked += 1
            return super().__getitem__(key)

    def per_task(count: int) -> float:
        nonlocal looked
        ids = [str(n) for n in range(count)]
        agenda = Agenda({id_: (ids[n - 1],) if n else () for n, id_ in enumerate(ids)}, {})
        agenda._status, agenda._unmet = Counted(agenda._status), Counted(agenda._unmet)
        looked = 0
        while (id_ := agenda.next()) is not None:
            agenda.set(id_, TaskStatus.IN_PROGRESS)
            agenda.set(id_, TaskStatus.COMPLETED)
            agenda.find_hopeless(), agenda.summary()
        return looked / count

    assert per_task(2000) < 1.1 * per_task(200)
