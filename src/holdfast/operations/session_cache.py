"""The cached tips of a process's sessions, so that the next save need not read. Never trusted.

The cache is bounded. A cached tip is only ever a guess about the store: each commit compares the
head's version and the logs' tails with the stored ones. A save caches its next tip before its
commit is acknowledged, so that saves of one session can queue up behind each other. If the commit
fails, the tip is dropped, and the saves queued behind it fail their own comparison and start again
from the store.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from holdfast.backends.port import RowKey, Segment, Span
from holdfast.format.rows.head import Head
from holdfast.format.state.manifest import Manifest, Path
from holdfast.format.state.record import StoredRecord
from holdfast.format.state.split import KnownList
from holdfast.operations.contention import Contention

MAX_TIPS_BYTES = 64 << 20  # of tips, without their lists' encodings: about 50,000 sessions of small states
TIP_BYTES = 1300  # the size of a tip, measured, with its segments at hand


@dataclass(slots=True)
class SessionTip:
    """The tip of a session: its tree and head row, and the live checkpoint that the next save follows."""

    tree: bytes | None  # None: there is no such session yet
    version: int  # of the head row
    head: Head
    head_value: bytes | None  # of the head row
    checkpoint: StoredRecord | None  # the head, or its nearest ancestor that has not expired
    manifest: Manifest | None = None  # of the checkpoint
    lists: dict[Path, KnownList] = field(default_factory=dict)
    reading: object = field(default_factory=object)  # the reading of the store that this tip is built on
    at_hand: Mapping[Span, Sequence[Segment]] | None = None  # the segments of the same reading
    key: RowKey | None = None  # of the head row, if known

    def find_list(self, path: Path) -> KnownList | None:
        known = self.lists.get(path)
        if known is None and self.manifest is not None:
            entry = self.manifest.list_at(path)
            known = KnownList(entry, None, None) if entry else None
        return known

    def buffered_bytes(self) -> int:
        """Return the size of its lists' encodings in memory."""
        return sum(known.groups.size for known in self.lists.values() if known.groups is not None)

    def own_bytes(self) -> int:
        """Return the approximate size of the tip in memory, without the encodings of its lists."""
        return TIP_BYTES + (2 * len(self.checkpoint.body) if self.checkpoint is not None else 0)


class TipCache:
    """The tips used last, up to `MAX_TIPS_BYTES`, with at most `max_bytes` of their lists' encodings."""

    def __init__(self, max_bytes: int, lock: AbstractContextManager[object]) -> None:
        self._max_bytes = max_bytes
        self.begin(lock)

    def begin(self, lock: AbstractContextManager[object]) -> None:
        """Start empty with this lock: at first, and in a forked child."""
        self._lock = lock
        self._tips: OrderedDict[bytes, tuple[SessionTip, int]] = OrderedDict()
        self._bytes = 0  # of encodings
        self._tip_bytes = 0
        self.contention = Contention(lock)

    @property
    def buffered_bytes(self) -> int:
        return self._bytes

    def get(self, session: bytes) -> SessionTip | None:
        with self._lock:
            found = self._tips.get(session)
            if found is None:
                return None
            self._tips.move_to_end(session)
            return found[0]

    def put(self, session: bytes, tip: SessionTip) -> None:
        size = tip.buffered_bytes()
        with self._lock:
            self._forget(session)
            self._tips[session] = (tip, size)
            self._bytes += size
            self._tip_bytes += tip.own_bytes()
            while self._tips and (self._bytes > self._max_bytes or self._tip_bytes > MAX_TIPS_BYTES):
                self._forget(next(iter(self._tips)))

    def follow(self, session: bytes, before: SessionTip, after: SessionTip) -> bool:
        """Replace a tip without encodings by the next one; return False if another one is cached."""
        with self._lock:
            found = self._tips.get(session)
            if found is None or found[0] is not before or found[1]:
                return False
            self._tips[session] = (after, 0)
            self._tips.move_to_end(session)
            self._tip_bytes += after.own_bytes() - before.own_bytes()
            return True

    def drop(self, session: bytes) -> None:
        with self._lock:
            self._forget(session)

    def drop_failed(self, session: bytes, failed: SessionTip) -> None:
        """Drop the tip if it is the failed one or built on it, and not one that was read since."""
        with self._lock:
            found = self._tips.get(session)
            if found is not None and found[0].reading is failed.reading:
                self._forget(session)

    def clear(self) -> None:
        with self._lock:
            self._tips.clear()
            self._bytes = self._tip_bytes = 0

    def _forget(self, session: bytes) -> None:
        forgotten = self._tips.pop(session, None)
        if forgotten is not None:
            self._bytes -= forgotten[1]
            self._tip_bytes -= forgotten[0].own_bytes()
