"""Tasks: named units of progress, what they depend on, and which one is next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
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
    """What an item is known by: itself, if it is a text or a number, or its `id`."""
    if isinstance(item, str):
        return item
    if isinstance(item, int) and not isinstance(item, bool):
        return str(item)
    found = item.get("id") if isinstance(item, Mapping) else getattr(item, "id", None)
    if isinstance(found, str | int) and not isinstance(found, bool):
        return str(found)
    raise UsageError(
        f"a task is known by its id, and {item!r:.60} has none: give texts or numbers, items with an `id`, or key=..., a "
        "function that gives the id of an item"
    )


def dependencies(
    ids: Sequence[str],
    items: Sequence[Any],
    depends: Mapping[str, Iterable[str]] | Callable[[Any], Iterable[str]] | None,
) -> dict[str, tuple[str, ...]]:
    """What each task depends on, checked: all of it is there, and nothing depends on itself."""
    if len(set(ids)) != len(ids):
        twice = next(id_ for id_ in ids if ids.count(id_) > 1)
        raise UsageError(f"two tasks have the id {twice!r:.60}: each needs one of its own")
    needed: dict[str, tuple[str, ...]] = {}
    for id_, item in zip(ids, items, strict=True):
        found = () if depends is None else depends(item) if callable(depends) else depends.get(id_, ())
        needed[id_] = tuple(map(str, found))
        unknown = [one for one in needed[id_] if one not in set(ids)]
        if unknown:
            raise UsageError(f"task {id_!r:.60} depends on {unknown[0]!r:.60}, which is not among the tasks")
    _refuse_circles(needed)
    return needed


def _refuse_circles(needed: Mapping[str, Sequence[str]]) -> None:
    left = {id_: set(of) for id_, of in needed.items()}
    while left:
        ready = [id_ for id_, of in left.items() if not of & left.keys()]
        if not ready:
            raise UsageError(f"tasks that depend on each other in a circle: {', '.join(sorted(left)[:10])}")
        for id_ in ready:
            del left[id_]


def next_task(needed: Mapping[str, Sequence[str]], status: Mapping[str, TaskStatus]) -> str | None:
    """The first task, in the order given, that is not over, and all of whose dependencies are completed. One that was in
    progress comes before others: it is where the program stopped."""
    candidates = [id_ for id_ in needed if not status.get(id_, TaskStatus.PENDING).is_over]
    candidates.sort(key=lambda id_: status.get(id_) is not TaskStatus.IN_PROGRESS)
    for id_ in candidates:
        if all(status.get(one) is TaskStatus.COMPLETED for one in needed[id_]):
            return id_
    return None


def hopeless(needed: Mapping[str, Sequence[str]], status: Mapping[str, TaskStatus]) -> dict[str, str]:
    """The tasks that can't be done any more, and why: one that they depend on failed or was skipped."""
    found: dict[str, str] = {}
    changed = True
    now = dict(status)
    while changed:
        changed = False
        for id_, of in needed.items():
            if now.get(id_, TaskStatus.PENDING).is_over:
                continue
            bad = next((one for one in of if now.get(one) in (TaskStatus.FAILED, TaskStatus.SKIPPED)), None)
            if bad is not None:
                found[id_] = f"depends on {bad}, which {'failed' if now[bad] is TaskStatus.FAILED else 'was skipped'}"
                now[id_] = TaskStatus.SKIPPED
                changed = True
    return found


def summary(ids: Sequence[str], status: Mapping[str, TaskStatus]) -> dict[str, Any]:
    """What a checkpoint says of a list of tasks, however long that is."""
    counted = {str(one): 0 for one in TaskStatus}
    for id_ in ids:
        counted[status.get(id_, TaskStatus.PENDING)] += 1
    current = [id_ for id_ in ids if status.get(id_) is TaskStatus.IN_PROGRESS]
    return {"total": len(ids), **{one: count for one, count in counted.items() if count}, "current": current[:5]}
