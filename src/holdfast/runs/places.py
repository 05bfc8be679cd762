"""Where in a program calls are made, which effects they ask for, and which recorded ones were not asked for again.

A program that is resumed runs from the top and asks for what it asked for before. What it has not asked for yet is *unclaimed*: a
call for something else may be a call for that, with arguments that were made up anew. A call that ended without a result gives its
place back: whoever makes it again asks for the same effect.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast.model.tasks import TaskStatus
from holdfast.objects import journal
from holdfast.objects.journal import EFFECT, OK, STEP, TASK, TRACE, Journal, Record

_DIGEST = len("%21") + 32  # of an effect's identity, at the end of its name in a place


class Places:
    """Threads may share it."""

    def __init__(self, recorded: Journal | None = None) -> None:
        self._lock = threading.Lock()
        self._counted: dict[str, int] = {}  # by place without its occurrence: how many there were
        self._given_back: dict[str, list[int]] = {}  # the same: occurrences that ended without a result
        self._ordinals: defaultdict[tuple[str, bytes], dict[str, int]] = defaultdict(dict)  # by tool and identity
        self._unclaimed: defaultdict[str, dict[str, bytes]] = defaultdict(dict)  # by tool: places and ids
        self._under_key: dict[str, str] = {}  # by place without the identity
        if recorded is not None:
            self._take_up(recorded)

    def _take_up(self, recorded: Journal) -> None:
        passed_over = {path for path in map(_finished, recorded) if path is not None}
        for record in recorded:
            if record.kind == EFFECT and record.status == OK:
                self.note(record)
                id_, tool, digest, ordinal = record.about
                self._ordinals[tool, digest][record.place] = ordinal
                if passed_over.isdisjoint(_around(record.place)):
                    self._unclaimed[tool][record.place] = id_

    # -- places and ordinals -----------------------------------------------------------------------------------------

    def place(self, path: str, name: str, key: str | None) -> str:
        """Where a call is: its path, its name, and which time it is called, or the key it was given."""
        start = f"{path}{journal.part(name)}#"
        if key is not None:
            return f"{start}{journal.part(key)}!"
        with self._lock:
            if self._given_back and (again := self._given_back.get(start)):
                again.sort(reverse=True)
                return f"{start}{again.pop()}"
            number = self._counted.get(start, 0)
            self._counted[start] = number + 1
        return f"{start}{number}"

    def ordinal(self, tool: str, digest: bytes, place: str) -> int:
        """Which of the effects of that tool and identity the one at that place is: the lowest number that is free."""
        with self._lock:
            taken = self._ordinals[tool, digest]
            if place not in taken:
                used = set(taken.values())
                taken[place] = next(number for number in range(len(used) + 1) if number not in used)
            return taken[place]

    def give_back(self, place: str, tool: str, digests: Iterable[bytes], record: Record | None) -> None:
        """A call for an effect has raised; `record` is what is known of it all the same."""
        with self._lock:
            if record is None or record.status != OK:
                for digest in digests:
                    self._ordinals[tool, digest].pop(place, None)
            if not _has_key(place) and (record is None or record.status == OK):
                start, _, number = place.rpartition("#")
                self._given_back.setdefault(f"{start}#", []).append(int(number))

    def begin_again(self, path: str) -> None:
        """What is inside of this path is run anew, from its top."""
        with self._lock:
            for counted in (self._counted, self._given_back):
                for start in [one for one in counted if one.startswith(path)]:
                    del counted[start]

    # -- what was recorded -------------------------------------------------------------------------------------------

    def note(self, record: Record) -> None:
        """An effect is recorded as done."""
        if _has_key(record.place):
            self._under_key[_without_identity(record.place)] = record.place

    def other_under_key(self, place: str) -> str | None:
        """Where another effect of that name is recorded, with another identity and the same key."""
        found = self._under_key.get(_without_identity(place)) if _has_key(place) else None
        return None if found == place else found

    def claim(self, tool: str, place: str) -> None:
        if tool in self._unclaimed:
            with self._lock:
                self._unclaimed[tool].pop(place, None)

    def abandon(self, path: str, entries: Sequence[list[Any]]) -> None:
        """What is inside of this path has failed: the effects among these records have nobody who asked for them."""
        for record in (Record(*entry) for entry in entries):
            if record.kind == EFFECT and record.status == OK and record.place.startswith(path):
                id_, tool, *_ = record.about
                with self._lock:
                    self._unclaimed[tool][record.place] = id_

    def all_unclaimed(self) -> set[bytes]:
        with self._lock:
            return {id_ for of_tool in self._unclaimed.values() for id_ in of_tool.values()}

    def unclaimed(self, tool: str) -> Mapping[bytes, str]:
        """The effects of that tool, and where they were asked for."""
        with self._lock:
            return {id_: place for place, id_ in self._unclaimed[tool].items()} if tool in self._unclaimed else {}


def could_be_the_same(one: str, other: str, *, is_alike: bool) -> bool:
    """Whether calls for effects of one tool at two places could be one call, of which the arguments were made up anew. `is_alike`
    says that nothing differs but what is new in every call."""
    if _has_key(one) and _has_key(other):
        return False  # who made them says that they are two
    return is_alike or (not _has_key(one) and not _has_key(other) and _path(one) == _path(other))


def _finished(record: Record) -> str | None:
    """The path inside of which nobody will ask for anything again."""
    if record.kind in (STEP, EFFECT):
        return f"{record.place}/" if record.status == OK else None
    if record.kind == TASK:
        return f"{record.place}/" if TaskStatus(record.about[0]).is_over else None
    return record.place.removesuffix("trace") if record.kind == TRACE and record.status == OK else None


def _around(place: str) -> Iterable[str]:
    """The paths that a place is inside of."""
    return (place[: at + 1] for at, sign in enumerate(place) if sign == "/")


def _path(place: str) -> str:
    return place.rpartition("/")[0]


def _has_key(place: str) -> bool:
    return place.endswith("!")


def _without_identity(place: str) -> str:
    named, _, key = place.rpartition("#")
    return f"{named[:-_DIGEST]}#{key}"
