"""Where in a program calls are made, which effects they ask for, and which recorded ones were not asked for again.

A program that is resumed runs from the top and asks for what it asked for before. What it has not asked for yet is *unclaimed*: a
call for something else may be a call for that, with arguments that were made up anew. A call that ended without a result gives its
place back: whoever makes it again asks for the same effect.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any

from holdfast.model.tasks import TaskStatus
from holdfast.objects import journal
from holdfast.objects.journal import EFFECT, OK, STEP, TASK, TRACE, Journal, Record
from holdfast.objects.ledger import Entry

_DIGEST = len("%21") + 32  # of an effect's identity, at the end of its name in a place


class Places:
    """Threads may share it."""

    def __init__(self, recorded: Journal | None = None) -> None:
        self._lock = threading.Lock()
        self._counted: dict[str, int] = {}  # by place without its occurrence: how many there were
        self._given_back: dict[str, list[int]] = {}  # the same: occurrences that ended without a result
        self._ordinals: defaultdict[tuple[str, bytes], dict[str, int]] = defaultdict(dict)  # by tool and identity
        self._in_ledger: defaultdict[tuple[str, bytes], dict[int, str | None]] = defaultdict(
            dict
        )  # who asked for each ordinal
        self._unclaimed: defaultdict[str, dict[str, bytes]] = defaultdict(dict)  # by tool: places and ids
        self._under_key: dict[str, str] = {}  # by place without the identity
        # Paths inside of which nobody will ask for anything again, unless they are entered; and what is inside of them.
        self._passed_over: set[str] = set()
        self._resting: defaultdict[str, list[Record]] = defaultdict(list)
        self._begun: set[str] = set()  # paths of tasks and sub-agents that were begun in this life
        self._failed: set[str] = set()  # of these, those that failed
        self._interrupted: set[str] = set()  # places of results that were recorded, and perhaps not saved
        if recorded is not None:
            self._take_up(recorded)

    def _take_up(self, recorded: Journal) -> None:
        self._passed_over = {path for path in map(_finished, recorded) if path is not None}
        for record in recorded:
            if record.kind == EFFECT and record.status == OK:
                self.note(record)
                _, tool, digest, ordinal, *asked_for = record.about
                self._ordinals[tool, digest][record.place] = ordinal
                if asked_for:
                    self._ordinals[tool, asked_for[0]][record.place] = asked_for[1]
                self._rest_or_wait(record)

    def _rest_or_wait(self, record: Record) -> None:
        """An effect that was not asked for again: because something around it is passed over, or not yet."""
        around = next((path for path in _around(record.place) if path in self._passed_over), None)
        if around is not None:
            self._resting[around].append(record)
        else:
            self._unclaimed[record.about[1]][record.place] = record.about[0]

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

    def ordinal(self, tool: str, digest: bytes, place: str, *, is_named: bool = True) -> int:
        """Which of the effects of that tool and identity the one at that place is: the one that was asked for there, or else the
        lowest number that is free. Free is what this line of execution has no record of, and what nobody has asked for who is
        another for sure; unless `is_named` is False: then who asked makes no difference."""
        with self._lock:
            taken, asked_at = self._ordinals[tool, digest], self._in_ledger.get((tool, digest), {})
            if place not in taken:
                used = set(taken.values())
                own = [number for number, at in asked_at.items() if is_named and at == place and number not in used]
                others = {
                    number for number, at in asked_at.items() if is_named and at is not None and are_two(at, place)
                }
                taken[place] = min(own) if own else next(n for n in count() if n not in used and n not in others)
            return taken[place]

    def take(self, entry: Entry, place: str) -> None:
        """The one at that place is the one that the ledger has there."""
        with self._lock:
            self._ordinals[entry.tool, entry.identity][place] = entry.ordinal

    def heed(self, entry: Entry) -> None:
        """The ledger has this one, on whatever branch."""
        with self._lock:
            self._in_ledger[entry.tool, entry.identity][entry.ordinal] = entry.place

    def give_back(self, place: str) -> None:
        """A call has ended, and its result was given to nobody: who makes it again is at the same place."""
        if not has_key(place):
            start, _, number = place.rpartition("#")
            with self._lock:
                self._given_back.setdefault(f"{start}#", []).append(int(number))

    def give_back_effect(self, place: str, tool: str, digests: Iterable[bytes], record: Record | None) -> None:
        """The same of an effect. `record` is what is known of it all the same: a failure is the result of the call, but leaves it
        the same effect. One that has a key is not another one's, whatever becomes of it."""
        is_done = record is not None and record.status == OK
        if not is_done and not has_key(place):
            self.forget_ordinal(place, tool, digests)
        if record is None or is_done:
            self.give_back(place)
        if record is not None and is_done:
            with self._lock:
                self._unclaimed[tool][place] = record.about[0]
                self._interrupted.add(place)

    def forget_ordinal(self, place: str, tool: str, digests: Iterable[bytes]) -> None:
        """An equal effect that is asked for from now on is the same one."""
        with self._lock:
            for digest in digests:
                self._ordinals[tool, digest].pop(place, None)

    def forget_interruption(self, place: str) -> bool:
        """Whether a result was recorded there that nobody was given: from now on it counts as given."""
        if place not in self._interrupted:
            return False
        self._interrupted.discard(place)
        return True

    def interrupt(self, place: str) -> None:
        self._interrupted.add(place)

    # -- paths -------------------------------------------------------------------------------------------------------

    def begin(self, path: str) -> bool:
        """A task or sub-agent is begun: what it did in an earlier life will be asked for again. Whether it was begun in this life
        already."""
        with self._lock:
            if path in self._passed_over:
                self._passed_over.discard(path)
                for record in self._resting.pop(path, ()):
                    self._rest_or_wait(record)
            was_begun = path in self._begun
            self._begun.add(path)
            return was_begun

    def fail(self, path: str) -> None:
        self._failed.add(path)

    def forget_failure(self, path: str) -> bool:
        """Whether a sub-agent failed in this life: from now on it counts as begun again."""
        if path not in self._failed:
            return False
        self._failed.discard(path)
        return True

    def begin_again(self, path: str) -> None:
        """What is inside of this path is run anew, from its top."""
        with self._lock:
            for counted in (self._counted, self._given_back):
                for start in [one for one in counted if one.startswith(path)]:
                    del counted[start]
            self._begun = {one for one in self._begun if one == path or not one.startswith(path)}

    # -- what was recorded -------------------------------------------------------------------------------------------

    def note(self, record: Record) -> None:
        """An effect is recorded as done."""
        if has_key(record.place):
            self._under_key[_without_identity(record.place)] = record.place

    def other_under_key(self, place: str) -> str | None:
        """Where another effect of that name is recorded, with another identity and the same key."""
        found = self._under_key.get(_without_identity(place)) if has_key(place) else None
        return None if found == place else found

    def claim(self, tool: str, place: str) -> None:
        if tool in self._unclaimed:
            with self._lock:
                self._unclaimed[tool].pop(place, None)

    def abandon(self, path: str, entries: Sequence[list[Any]], *, with_threads: bool = False) -> None:
        """What is inside of this path has failed, or is run anew: the effects among these records are to be asked for again. So
        are those `with_threads` that it may have started, of which nobody knows inside of what they were."""
        records = [Record(*entry) for entry in entries if entry[0].startswith(path) or entry[1] == EFFECT]
        with self._lock:
            self._passed_over |= {one for one in map(_finished, records) if one is not None}
            for record in records:
                is_inside = record.place.startswith(path) or (with_threads and record.place.count("/") == 1)
                if is_inside and record.kind == EFFECT and record.status == OK:
                    self._rest_or_wait(record)

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
    if has_key(one) and has_key(other):
        return False  # who made them says that they are two
    return is_alike or (not has_key(one) and not has_key(other) and _path(one) == _path(other))


def are_two(one: str, other: str) -> bool:
    """Whether calls at two places are two for sure: they have other keys; or where their ways part, these are other tasks of one
    list, or sub-agents with other ids. Else the program may have been changed in between, and the same call be made elsewhere."""
    if _key(one) != _key(other):
        return True
    before = None
    for here, there in zip(_path(one).split("/"), _path(other).split("/"), strict=False):
        if here != there:
            is_task = before == ""  # what comes before is the list's name, and nothing
            return is_task or (_key(here) != _key(there) and here.partition("#")[0] == there.partition("#")[0])
        before = here
    return False


def _key(place: str) -> str | None:
    return place.rpartition("#")[2] if has_key(place) else None


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


def has_key(place: str) -> bool:
    return place.endswith("!")


def _without_identity(place: str) -> str:
    named, _, key = place.rpartition("#")
    return f"{named[:-_DIGEST]}#{key}"
