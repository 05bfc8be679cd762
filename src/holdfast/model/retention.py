"""Retention: which checkpoints may expire. Pure: a policy, the checkpoints, and the time.

A checkpoint is *kept* if any of these holds:

- it is protected: it is a session's head, it is pinned or tagged, or it is a waiting handoff;
- `keep_last=N`: it is one of the newest N of its session, by sequence number;
- `keep_every=N`: its sequence number is a multiple of N;
- `older_than`: it is younger than that.

All others may expire. With `max_bytes`, only as many of those expire as needed, oldest first, until
the store takes no more than that; it never removes checkpoints that another rule keeps. A policy
without any rule is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from holdfast.errors import UsageError

_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """A policy. A rule that is left out keeps nothing; without `max_bytes` there is no size limit."""

    keep_last: int | None = None
    keep_every: int | None = None
    older_than: timedelta | None = None
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        _check_number("keep_last", self.keep_last, 0)
        _check_number("keep_every", self.keep_every, 1)
        _check_number("max_bytes", self.max_bytes, 0)
        older_than: Any = self.older_than
        if older_than is not None and (not isinstance(older_than, timedelta) or older_than < timedelta(0)):
            raise UsageError(f"older_than is {older_than!r}: it must be a timedelta, such as timedelta(days=30)")
        if (self.keep_last, self.keep_every, self.older_than, self.max_bytes) == (None, None, None, None):
            raise UsageError(
                "a policy without any rule would keep nothing but the heads: give keep_last, keep_every, older_than or "
                "max_bytes"
            )


def _check_number(rule: str, value: Any, least: int) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
        raise UsageError(
            f"{rule} is {value!r}: it must be a whole number from {least} on. Leave it out for no such rule"
        )


class LiveCheckpoint(NamedTuple):
    """One live checkpoint, as a policy sees it."""

    id: bytes
    session: str
    sequence: int
    created_at_us: int
    is_protected: bool = False


def may_go(policy: Retention, entries: Sequence[LiveCheckpoint], now_us: int) -> list[LiveCheckpoint]:
    """Return the checkpoints that no rule keeps, oldest first, without regard to `max_bytes`."""
    last = _newest(entries, policy.keep_last) if policy.keep_last is not None else set()
    youngest = None if policy.older_than is None else now_us - policy.older_than // _MICROSECOND
    going = [
        entry
        for entry in entries
        if not entry.is_protected
        and entry.id not in last
        and (policy.keep_every is None or entry.sequence % policy.keep_every)
        and (youngest is None or entry.created_at_us <= youngest)
    ]
    return _oldest_first(going)


def _newest(entries: Sequence[LiveCheckpoint], count: int) -> set[bytes]:
    return {
        entry.id for of_session in _group_by_session(entries) for entry in of_session[max(len(of_session) - count, 0) :]
    }


def _oldest_first(entries: Sequence[LiveCheckpoint]) -> list[LiveCheckpoint]:
    """Return the entries by time between sessions, and by sequence within one, whatever the clocks said.

    A checkpoint counts as made after all those that were saved to its session before.
    """
    places: list[tuple[int, bytes, int, LiveCheckpoint]] = []
    for of_session in _group_by_session(entries):
        time = 0
        for entry in of_session:
            time = max(time, entry.created_at_us)
            places.append((time, of_session[0].id, entry.sequence, entry))
    return [entry for *_, entry in sorted(places)]


def _group_by_session(entries: Sequence[LiveCheckpoint]) -> list[list[LiveCheckpoint]]:
    """Return the entries of each session, in the order of their sequence numbers."""
    by_session: dict[str, list[LiveCheckpoint]] = {}
    for entry in sorted(entries, key=lambda entry: entry.sequence):
        by_session.setdefault(entry.session, []).append(entry)
    return list(by_session.values())


def choose_fewest(candidates: int, fits: Callable[[int], bool]) -> int:
    """Return the smallest number of first candidates to remove so that it `fits`; all if it never does.

    If it fits with some removed, it fits with more removed: so a binary search is enough.
    """
    low, high = 0, candidates
    while low < high:
        middle = (low + high) // 2
        if fits(middle):
            high = middle
        else:
            low = middle + 1
    return low
