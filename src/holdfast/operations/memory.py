"""What a process remembers of its sessions, so that the next save need not read: capped, and never trusted.

A remembered line is only ever a guess about the store: each commit compares the head's version and the logs' tails
with what is really there. A save puts the line it leads to here before its commit is acknowledged, so that saves of
one session can queue up behind each other; if the commit fails, the line is dropped, and what was queued behind it
fails its own comparison and starts again from the store.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from holdfast.backends.port import RowKey, Run, Span
from holdfast.objects.manifest import Manifest, Path
from holdfast.objects.record import Stored
from holdfast.objects.rows import Head
from holdfast.objects.split import KnownList

LINES_REMEMBERED = 4096


@dataclass(slots=True)
class Line:
    """Where a session stands: its tree and head row, and the live checkpoint that the next save follows."""

    tree: bytes | None  # None: there is no such session yet
    version: int  # of the head row
    head: Head
    head_value: bytes | None  # of the head row
    tip: Stored | None  # the head, or its nearest ancestor that has not expired
    manifest: Manifest | None = None  # of the tip
    lists: dict[Path, KnownList] = field(default_factory=dict)
    reading: object = field(default_factory=object)  # the look at the store that this line is built upon
    at_hand: Mapping[Span, Sequence[Run]] | None = None  # what was read by the same look
    key: RowKey | None = None  # of the head row, where it is at hand

    def known(self, path: Path) -> KnownList | None:
        known = self.lists.get(path)
        if known is None and self.manifest is not None:
            entry = self.manifest.list_at(path)
            known = KnownList(entry, None, None) if entry else None
        return known

    def is_watched(self) -> bool:
        return any(known.groups is not None and known.groups.witnesses for known in self.lists.values())

    def unwatch(self) -> None:
        """Lets its lists' witnesses go: what they spare is least, and they take most of the memory."""
        for path, known in self.lists.items():
            if known.groups is not None:
                self.lists[path] = KnownList(known.entry, known.groups.unwatched(), known.chain, known.was_appended_to)

    def buffered_bytes(self) -> int:
        return sum(known.groups.kept_bytes for known in self.lists.values() if known.groups is not None)


class LineMemory:
    """The lines used last, at most `LINES_REMEMBERED`, with at most `max_bytes` of their lists' encodings and witnesses. Where
    there is too much, witnesses go first: many sessions that are remembered are worth more than few that are watched."""

    def __init__(self, max_bytes: int, lock: AbstractContextManager[object]) -> None:
        self._max_bytes = max_bytes
        self._lock = lock
        self._lines: OrderedDict[bytes, tuple[Line, int]] = OrderedDict()
        self._bytes = 0
        self._watched: OrderedDict[bytes, None] = OrderedDict()  # the sessions whose lines are

    @property
    def buffered_bytes(self) -> int:
        return self._bytes

    def get(self, session: bytes) -> Line | None:
        with self._lock:
            found = self._lines.get(session)
            if found is None:
                return None
            self._lines.move_to_end(session)
            if session in self._watched:
                self._watched.move_to_end(session)
            return found[0]

    def put(self, session: bytes, line: Line) -> None:
        size = 0
        for known in line.lists.values():
            if known.groups is not None:
                size += known.groups.kept_bytes
        is_watched = size > 0 and line.is_watched()
        with self._lock:
            lines = self._lines
            before = lines.get(session)
            lines[session] = (line, size)
            lines.move_to_end(session)
            self._bytes += size if before is None else size - before[1]
            if is_watched:
                self._watched[session] = None
                self._watched.move_to_end(session)
            elif self._watched:
                self._watched.pop(session, None)
            if self._bytes > self._max_bytes or len(lines) > LINES_REMEMBERED:
                self._make_room()

    def follow(self, session: bytes, before: Line, after: Line) -> bool:
        """Puts a line of which no encodings are remembered in the place of such another one, if that is what is remembered."""
        with self._lock:
            found = self._lines.get(session)
            if found is None or found[0] is not before or found[1]:
                return False
            self._lines[session] = (after, 0)
            self._lines.move_to_end(session)
            return True

    def drop(self, session: bytes) -> None:
        with self._lock:
            self._forget(session)

    def drop_failed(self, session: bytes, failed: Line) -> None:
        """Drops the line if it is the failed one or built upon it, and not one that somebody has read since."""
        with self._lock:
            found = self._lines.get(session)
            if found is not None and found[0].reading is failed.reading:
                self._forget(session)

    def clear(self) -> None:
        with self._lock:
            self._lines.clear()
            self._watched.clear()
            self._bytes = 0

    def _make_room(self) -> None:
        while self._bytes > self._max_bytes and self._watched:
            self._unwatch(next(iter(self._watched)))
        while self._bytes > self._max_bytes or len(self._lines) > LINES_REMEMBERED:
            self._forget(next(iter(self._lines)))

    def _unwatch(self, session: bytes) -> None:
        del self._watched[session]
        line, size = self._lines[session]
        line.unwatch()
        self._lines[session] = (line, left := line.buffered_bytes())
        self._bytes -= size - left

    def _forget(self, session: bytes) -> None:
        self._watched.pop(session, None)
        forgotten = self._lines.pop(session, None)
        if forgotten is not None:
            self._bytes -= forgotten[1]
