"""Tasks: named units of progress, their dependencies, and which one is next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from heapq import heappop, heappush
from typing import Any

from holdfast.errors import UsageError


class TaskStatus(StrEnum):
    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"

    @property
    def is_over(self) -> bool:
        return self in (TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.SKIPPED)


def id_of(item: Any) -> str:
    """Return the id of an item: the item itself, if it is a text or a number, or its `id`."""
    if isinstance(item, str):
        return item
    if isinstance(item, int) and not isinstance(item, bool):
        return str(item)
    found = item.get("id") if isinstance(item, Mapping) else getattr(item, "id", None)
    if isinstance(found, str | int) and not isinstance(found, bool):
        return str(found)
    raise UsageError(
        f"a task is known by its id, and {item!r:.60} has none: give texts or numbers, items with an "
        "`id`, or key=..., a function that gives the id of an item"
    )


def dependencies(
    ids: Sequence[str],
    items: Sequence[Any],
    depends: Mapping[str, Iterable[str]] | Callable[[Any], Iterable[str]] | None,
) -> dict[str, tuple[str, ...]]:
    """Return the dependencies of each task, checked: all of them exist, and there is no cycle."""
    if len(set(ids)) != len(ids):
        twice = next(id_ for id_ in ids if ids.count(id_) > 1)
        raise UsageError(f"two tasks have the id {twice!r:.60}: each needs one of its own")
    known = set(ids)
    needed: dict[str, tuple[str, ...]] = {}
    for id_, item in zip(ids, items, strict=True):
        found = () if depends is None else depends(item) if callable(depends) else depends.get(id_, ())
        needed[id_] = tuple(map(str, found))
        unknown = next((other for other in needed[id_] if other not in known), None)
        if unknown is not None:
            raise UsageError(f"task {id_!r:.60} depends on {unknown!r:.60}, which is not among the tasks")
    _refuse_circles(needed)
    return needed


def _refuse_circles(needed: Mapping[str, Sequence[str]]) -> None:
    unmet, dependents = {id_: len(set(of)) for id_, of in needed.items()}, _dependents(needed)
    ready = [id_ for id_, count in unmet.items() if not count]
    for id_ in ready:  # which grows
        for dependent in dependents.get(id_, ()):
            unmet[dependent] -= 1
            if not unmet[dependent]:
                ready.append(dependent)
    if len(ready) < len(needed):
        left = sorted(id_ for id_, count in unmet.items() if count)
        raise UsageError(f"tasks that depend on each other in a circle: {', '.join(left[:10])}")


def _dependents(needed: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return which tasks depend on each."""
    found: dict[str, list[str]] = {}
    for id_, of in needed.items():
        for item in dict.fromkeys(of):
            found.setdefault(item, []).append(id_)
    return found


class Agenda:
    """The states of tasks, and which one is next. The cost per task is independent of their number."""

    def __init__(self, needed: Mapping[str, Sequence[str]], status: Mapping[str, TaskStatus]) -> None:
        self._ids = list(needed)
        self._place = {id_: place for place, id_ in enumerate(self._ids)}
        self._dependents = _dependents(needed)
        self._status = dict.fromkeys(self._ids, TaskStatus.PENDING)
        self._count = Counter({TaskStatus.PENDING: len(self._ids)})
        self._unmet = {id_: len(set(of)) for id_, of in needed.items()}  # of dependencies that are not completed
        self._in_progress: set[str] = set()
        self._held: set[str] = set()  # those in progress elsewhere in this program
        self._lost: list[str] = []  # failed or skipped tasks whose dependents were not examined since
        self._ready = [
            (True, place) for place, id_ in enumerate(self._ids) if not self._unmet[id_]
        ]  # a heap, with leftovers
        for id_, now in status.items():
            if id_ in self._place:
                self.set(id_, now)

    def status(self, id_: str) -> TaskStatus:
        return self._status.get(id_, TaskStatus.PENDING)

    def set(self, id_: str, status: TaskStatus) -> None:
        before, self._status[id_] = self._status[id_], status
        self._count[before] -= 1
        self._count[status] += 1
        self._in_progress.discard(id_)
        self._held.discard(id_)
        if status is TaskStatus.IN_PROGRESS:
            self._in_progress.add(id_)
        if status in (TaskStatus.FAILED, TaskStatus.SKIPPED):
            self._lost.append(id_)
        delta = (status is TaskStatus.COMPLETED) - (before is TaskStatus.COMPLETED)
        for dependent in self._dependents.get(id_, ()) if delta else ():
            self._unmet[dependent] -= delta
            self._offer(dependent)
        self._offer(id_)

    def _offer(self, id_: str) -> None:
        if not self._unmet[id_] and not self._status[id_].is_over:
            heappush(self._ready, (self._status[id_] is not TaskStatus.IN_PROGRESS, self._place[id_]))

    def next(self) -> str | None:
        """Return the first task, in the given order, that is not over and has all dependencies completed.

        A task that was in progress comes before others: it is where the program stopped.
        """
        while self._ready:
            is_new, place = self._ready[0]
            id_ = self._ids[place]
            status = self._status[id_]
            is_open = not self._unmet[id_] and not status.is_over and id_ not in self._held
            if is_open and is_new == (status is not TaskStatus.IN_PROGRESS):
                return id_
            heappop(self._ready)
        return None

    def hold(self, id_: str) -> None:
        """Reserve a task: it is not `next` for other callers until it is `set` or released."""
        self._held.add(id_)

    def let_go(self, id_: str) -> None:
        if id_ in self._held:
            self._held.discard(id_)
            self._offer(id_)

    def find_hopeless(self) -> dict[str, str]:
        """Return the tasks that can no longer be done, and why: a dependency failed or was skipped.

        They stay so until they are `set`.
        """
        found: dict[str, str] = {}
        while self._lost:
            lost = self._lost.pop()
            if lost not in found and self._status[lost] not in (TaskStatus.FAILED, TaskStatus.SKIPPED):
                continue  # it is tried again
            how = "failed" if self._status[lost] is TaskStatus.FAILED else "was skipped"
            for dependent in self._dependents.get(lost, ()):
                if dependent not in found and not self._status[dependent].is_over:
                    found[dependent] = f"depends on {lost}, which {how}"
                    self._lost.append(dependent)
        return found

    def summary(self) -> dict[str, Any]:
        """Return the summary that a checkpoint stores; its size does not depend on the number of tasks."""
        counted = {str(task_status): self._count[task_status] for task_status in TaskStatus if self._count[task_status]}
        current = sorted(self._in_progress, key=self._place.__getitem__)
        return {"total": len(self._ids), **counted, "current": current[:5]}
