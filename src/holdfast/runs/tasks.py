"""A list of tasks, each done once, across crashes and resumes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

from holdfast.backends import fork_safety
from holdfast.backends.bridge.step import run_inline
from holdfast.format.state import run_journal
from holdfast.format.state.run_journal import OK, TASK, JournalRecord
from holdfast.model import task as pure
from holdfast.model.task import Agenda, TaskStatus
from holdfast.operations import validate
from holdfast.runs.call_sites import LoopFrame
from holdfast.runs.engine import RunEngine

Depends = Mapping[str, Iterable[str]] | Callable[[Any], Iterable[str]] | None


class Task:
    """One task. It is completed when the loop continues, unless `fail` or `skip` was called."""

    def __init__(self, id_: str, item: Any, attempts: int) -> None:
        self.id = id_
        """The text that it is known by."""
        self.item = item
        """The item as it was given to `run.tasks`."""
        self.attempts = attempts
        """How often it was begun, this time included."""
        self.status = TaskStatus.IN_PROGRESS
        """Where it stands."""
        self.note: str | None = None
        """The reason that was given with the status."""

    def fail(self, note: str | None = None) -> None:
        """Mark the task as failed. Tasks that depend on it are skipped; the others continue."""
        self.status, self.note = TaskStatus.FAILED, note

    def skip(self, note: str | None = None) -> None:
        """Mark the task as not needed."""
        self.status, self.note = TaskStatus.SKIPPED, note

    def complete(self, note: str | None = None) -> None:
        """Mark the task as done, as the end of the turn does, with a note."""
        self.status, self.note = TaskStatus.COMPLETED, note

    def __repr__(self) -> str:
        return f"<Task {self.id!r:.60} {self.status}>"


class TaskList:
    """The tasks of one name: their status, and the next one. Loops in several threads may share it."""

    def __init__(
        self, core: RunEngine, path: str, name: str, items: Iterable[Any], *, key: Callable[[Any], Any] | None,
        depends: Depends, retry_failed: bool, was: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self._core = core
        self._lock = threading.RLock()  # of the agenda; never held while anything is awaited
        fork_safety.begin_again_in_child(self, _begin_again)
        self.name = validate.name("name", name)
        path = core.path(path)
        self._place = core.choose_place([f"{path}{run_journal.part(known_name)}" for known_name in (self.name, *was)])
        core.index.note_path(f"{self._place}//")
        self._items = list(items)
        self._ids = [pure.id_of(item) if key is None else str(key(item)) for item in self._items]
        self._of_id = dict(zip(self._ids, self._items, strict=True))
        needed = pure.dependencies(self._ids, self._items, depends)
        status: dict[str, TaskStatus] = {}
        self._notes: dict[str, str | None] = {}
        self._attempts: dict[str, int] = {}
        for id_ in self._ids:
            record = core.journal.get(self._place_of(id_))
            if record is not None:
                status[id_], self._notes[id_] = TaskStatus(record.about[0]), record.about[1]
                self._attempts[id_] = record.attempts
        self._again: set[str] = set()  # failed ones
        if retry_failed:
            self._again = again = {id_ for id_, known in status.items() if known is TaskStatus.FAILED}
            skipped = {id_ for id_, known in status.items() if known is TaskStatus.SKIPPED}
            for id_ in again | {id_ for id_ in skipped if (self._notes[id_] or "").startswith("depends on ")}:
                status[id_] = TaskStatus.PENDING
        self._agenda = Agenda(needed, status)
        self._label = f"{path.partition('/')[2]}{self.name}"  # a sub-agent's list may have the name of the run's
        self._update_summary()

    # -- what there is -----------------------------------------------------------------------------------------------

    def status(self, id_: Any) -> TaskStatus:
        """Return where a task stands; pending if it was not begun."""
        return self._agenda.status(str(id_))

    def note(self, id_: Any) -> str | None:
        """Return the reason that was given with a task's status."""
        return self._notes.get(str(id_))

    @property
    def statuses(self) -> dict[str, TaskStatus]:
        """Each task's status, in the order in which they were given."""
        return {id_: self.status(id_) for id_ in self._ids}

    def __len__(self) -> int:
        return len(self._ids)

    def __repr__(self) -> str:
        over = self._agenda.summary().get(TaskStatus.COMPLETED, 0)
        return f"<{type(self).__name__} {self.name!r:.60}: {over} of {len(self)} completed>"

    # -- going on ----------------------------------------------------------------------------------------------------

    def _begin(self) -> Task | None:
        """Begin the first incomplete task that no other loop is at; None if there is none."""
        with self._lock:
            self._skip_unreachable()  # tasks added since that depend on a task that failed then
            id_ = self._agenda.next()
            if id_ is None:
                return None
            path = f"{self._place_of(id_)}/"
            if self._core.begin(path) or id_ in self._again:
                self._again.discard(id_)
                self._core.try_again(path)
            attempts = self._attempts.get(id_, 0) + 1
            self._mark(id_, TaskStatus.IN_PROGRESS, None, attempts)  # saved with whatever is saved next
            self._agenda.hold(id_)
            return Task(id_, self._of_id[id_], attempts)

    async def _end(self, task: Task) -> None:
        """End the task: it counts as done once this is saved."""
        if task.status is TaskStatus.IN_PROGRESS:
            task.status = TaskStatus.COMPLETED
        with self._lock:
            number = self._mark(task.id, task.status, task.note, task.attempts)
            number = self._skip_unreachable() or number
        await self._core.after_step(f"{self.name}: {task.id}", number)

    def _let_go(self, task: Task) -> None:
        """Release a task whose loop was left in the middle: it is still to be done."""
        with self._lock:
            self._agenda.let_go(task.id)

    def _skip_unreachable(self) -> int:
        number = 0
        for id_, why in self._agenda.find_hopeless().items():
            number = self._mark(id_, TaskStatus.SKIPPED, why, self._attempts.get(id_, 0))
        return number

    def _mark(self, id_: str, status: TaskStatus, note: str | None, attempts: int) -> int:
        self._agenda.set(id_, status)
        self._notes[id_], self._attempts[id_] = note, attempts
        self._update_summary()
        now = self._core.ctx.now_us()
        return self._core.record(
            JournalRecord(self._place_of(id_), TASK, OK, b"", attempts, now, now, [str(status), note])
        )

    def _update_summary(self) -> None:
        """Update the summary in the checkpoints.

        Of lists within tasks it has those that are under way: there may be as many as tasks.
        """
        summary = self._agenda.summary()
        is_done = "//" in self._label and not summary.keys() & {TaskStatus.PENDING, TaskStatus.IN_PROGRESS}
        others = {name: value for name, value in self._core.task_lists.items() if name != self._label}
        self._core.task_lists = others if is_done else self._core.task_lists | {self._label: summary}

    def _place_of(self, id_: str) -> str:
        return f"{self._place}//{run_journal.part(id_)}"


class TaskLoop:
    """One loop over tasks. Calls in a turn of it are made in the path of that task."""

    def __init__(self, tasks: TaskList) -> None:
        self._tasks = tasks
        self._task: Task | None = None
        self._turn: LoopFrame | None = None

    async def _get_next(self) -> Task | None:
        """End the task of the turn that is over, and begin the next."""
        task = self._leave()
        if task is not None:
            await self._tasks._end(task)
        self._task = task = self._tasks._begin()
        if task is not None:
            self._turn = LoopFrame(self._tasks._core, f"{self._tasks._place_of(task.id)}/")
        return task

    def _leave(self) -> Task | None:
        task, self._task = self._task, None
        if self._turn is not None:
            self._turn.end()
        self._turn = None
        return task

    def __del__(self) -> None:
        """Release the task of a loop that was left: then nothing refers to the loop any more."""
        if (task := self._leave()) is not None:
            self._tasks._let_go(task)


class AsyncLoop(TaskLoop):
    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Task:
        task = await self._get_next()
        if task is None:
            raise StopAsyncIteration
        return task


class SyncLoop(TaskLoop):
    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Task:
        task = run_inline(self._get_next())
        if task is None:
            raise StopIteration
        return task


class Tasks(TaskList):
    """`async for task in run.tasks("files", paths):`."""

    def __aiter__(self) -> AsyncLoop:
        return AsyncLoop(self)


class SyncTasks(TaskList):
    """`for task in run.tasks("files", paths):`."""

    def __iter__(self) -> SyncLoop:
        return SyncLoop(self)


def _begin_again(tasks: TaskList) -> None:
    """Make the lock again in a forked child: another thread of its parent may have held it."""
    tasks._lock = threading.RLock()
