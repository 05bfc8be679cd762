"""The layout of a tree: its rows newest first, each with its lane. Holds some 60 bytes for a row.

Rows are laid out from the newest on, by a merge of the tree's sessions, as far as a page needs. A
thread lays out the rest. New checkpoints are added at the top; a change that can't be added there,
such as an expiry, begins the layout again.
"""

from __future__ import annotations

import heapq
import threading
from array import array
from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.backends.bridge.step import run_inline
from holdfast.errors import CheckpointNotFoundError, CorruptError, HoldfastError
from holdfast.format.rows import head as heads
from holdfast.format.state import record
from holdfast.model import ids
from holdfast.operations import lookup, tombstones
from holdfast.web.session_index import LogPosition, follow_removals

if TYPE_CHECKING:
    from holdfast.backends.port import Record
    from holdfast.format.state.record import StoredRecord
    from holdfast.operations.context import StoreContext

FIRST_PAGE, PAGE = 4, 400
CHUNK = 250  # rows that are laid out under the lock
SHORT_PAUSE = 0.0001  # seconds between chunks, for the other threads: a layout must not slow down every answer
DEEPEST_ADDITION = 2000  # rows above a new checkpoint's parent that are looked at
MOST_CHANGES = 5000
NO_ROW = -1
UNKNOWN_TIME = 2**62  # of a damaged checkpoint: it stays next to its neighbour
REST_SECONDS = 2.0  # between two layouts of a tree
LEAF, HANDOFF, FAILED, BEGINS = 1, 2, 4, 8


class TreeRow(NamedTuple):
    """A row of the drawing; see `holdfast.model.tree.LaneRow` for its lanes."""

    row: int
    id: bytes
    session_id: str
    sequence: int
    parent_row: int | None
    lane: int
    through: tuple[int, ...]
    joins: tuple[int, ...]
    flags: int
    damage: str | None


class _Node(NamedTuple):
    at: int
    id: bytes
    session: int
    sequence: int
    parent: bytes | None
    flags: int
    damage: str | None
    is_expired: bool


class _Rows:
    """Columns of rows; lanes that occur often are kept once."""

    def __init__(self) -> None:
        self.ids: list[bytes] = []
        self.session, self.sequence, self.parent = array("i"), array("i"), array("i")
        self.lane, self.through, self.joins = array("i"), array("i"), array("i")
        self.flags = array("B")
        self._lanes: list[tuple[int, ...]] = [()]
        self._numbers: dict[tuple[int, ...], int] = {(): 0}

    def __len__(self) -> int:
        return len(self.ids)

    def number(self, lanes: tuple[int, ...]) -> int:
        found = self._numbers.get(lanes)
        if found is None:
            found = self._numbers[lanes] = len(self._lanes)
            self._lanes.append(lanes)
        return found

    def lanes(self, number: int) -> tuple[int, ...]:
        return self._lanes[number]

    def add(self, node: _Node, lane: int, through: tuple[int, ...], joins: tuple[int, ...], flags: int) -> None:
        self.ids.append(node.id)
        self.session.append(node.session)
        self.sequence.append(node.sequence)
        self.parent.append(NO_ROW)
        self.lane.append(lane)
        self.through.append(self.number(through))
        self.joins.append(self.number(joins))
        self.flags.append(flags)


class TreeLayout:
    """The rows of one tree."""

    def __init__(self, ctx: StoreContext, tree: bytes) -> None:
        self._ctx, self._tree = ctx, tree
        self._lock = threading.Lock()
        self._gate = threading.Lock()
        self._began = 0
        self._begin()

    # -- reading -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _hold_lock(self) -> Iterator[None]:
        """Hold the lock. Those that wait for it are at the gate, where a long layout lets them pass."""
        with self._gate:
            self._lock.acquire()
        try:
            yield
        finally:
            self._lock.release()

    @property
    def version(self) -> str:
        """Changes with each new checkpoint, and each time the layout begins again."""
        return f"{self._began}-{self._position}"

    @property
    def total(self) -> int:
        """The number of rows; while the layout is unfinished, at most so many."""
        with self._hold_lock():
            return len(self._old) + len(self._new) if self._is_done else len(self._new) + self._expected

    @property
    def sessions(self) -> int:
        return len(self._names)

    @property
    def lanes(self) -> int:
        """The number of columns so far."""
        return self._widest + 1

    def page(self, offset: int, limit: int) -> list[TreeRow]:
        self._finish(lambda: len(self._old) + len(self._new) >= offset + limit)
        with self._hold_lock():
            self._lay_out(offset + limit)
            self._finish_later()
            return [self._row(row) for row in range(offset, min(offset + limit, len(self._old) + len(self._new)))]

    def rows(self, numbers: Sequence[int]) -> list[TreeRow]:
        with self._hold_lock():
            return [self._row(row) for row in numbers]

    def find(self, id_: bytes) -> int:
        """Return the row of a checkpoint."""
        self._finish(lambda: id_ in self._place)
        with self._hold_lock():
            if id_ not in self._place:
                raise CheckpointNotFoundError(
                    f"checkpoint {ids.to_text(id_)} is not in the tree {ids.to_text(self._tree)}"
                )
            return self._number(self._place[id_])

    def line(self, id_: bytes) -> list[int]:
        """Return the rows of a checkpoint and its ancestors."""
        self._finish()
        with self._hold_lock():
            self._lay_out(None)
            place = self._place.get(id_, NO_ROW)
            found = []
            while place != NO_ROW:
                found.append(self._number(place))
                place = self._parent_of(place)
            return found

    def children(self, id_: bytes, limit: int) -> list[TreeRow] | None:
        """Return the children of a checkpoint; None as long as the layout has not come to it."""
        with self._hold_lock():
            place = self._place.get(id_)
            if place is None:
                self._lay_out(1)
                self._finish_later()
                return None
            found = [len(self._new) - 1 - i for i, parent in enumerate(self._new.parent) if parent == place]
            end = max(place, 0)
            found += [len(self._new) + i for i, parent in enumerate(self._old.parent[:end]) if parent == place]
            return [self._row(row) for row in sorted(found)[:limit]]

    def select(self, flags: int) -> list[int]:
        """Return the rows that have one of these flags."""
        self._finish()
        with self._hold_lock():
            self._lay_out(None)
            new = [self._number(-2 - i) for i in reversed(range(len(self._new))) if self._new.flags[i] & flags]
            return new + [len(self._new) + i for i, has in enumerate(self._old.flags) if has & flags]

    # Places tell rows apart whatever is added: those laid out first are 0, 1, …, later ones -2, -3, …

    def _number(self, place: int) -> int:
        return len(self._new) + place if place >= 0 else len(self._new) + 1 + place

    def _find_row(self, row: int) -> tuple[_Rows, int]:
        new = len(self._new)
        return (self._old, row - new) if row >= new else (self._new, new - 1 - row)

    def _parent_of(self, place: int) -> int:
        return self._old.parent[place] if place >= 0 else self._new.parent[-2 - place]

    def _row(self, row: int) -> TreeRow:
        rows, i = self._find_row(row)
        parent = rows.parent[i]
        return TreeRow(
            row=row,
            id=rows.ids[i],
            session_id=self._names[rows.session[i]],
            sequence=rows.sequence[i],
            parent_row=None if parent == NO_ROW else self._number(parent),
            lane=rows.lane[i],
            through=rows.lanes(rows.through[i]),
            joins=rows.lanes(rows.joins[i]),
            flags=rows.flags[i],
            damage=self._damage.get(rows.ids[i]),
        )

    # -- the layout --------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        ctx = self._ctx
        self._began += 1
        self._began_at, self._is_stale = monotonic(), False
        self._operation, _ = follow_removals(ctx, LogPosition())
        self._position: int = run_inline(ctx.backend.last_change())
        self._old, self._new = _Rows(), _Rows()
        self._place: dict[bytes, int] = {}
        self._damage: dict[bytes, str] = {}
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._widest = 0
        self._waiting: list[bytes | None] = []  # per lane, the checkpoint it leads to
        self._leading: dict[bytes, list[int]] = {}  # the lanes that lead to a checkpoint
        self._passing: dict[int, tuple[int, ...]] = {}  # the lanes beside a lane, while none begins or ends
        self._children: dict[bytes, list[int]] = {}  # rows that wait for their parent's
        self._is_done = False
        self._thread: threading.Thread | None = None
        packed = run_inline(tombstones.load_tombstones(ctx, self._tree))
        self._over: dict[bytes, bytes | None] = {tombstone.id: tombstone.parent for tombstone in packed}
        found = run_inline(ctx.backend.scan(heads.HEAD, tree=self._tree))
        if not found:
            raise CheckpointNotFoundError(
                f"there is no tree {ids.to_text(self._tree)} here. The `tree_id` of a session names one"
            )
        self._expected = 0
        for key, row in found:
            self._session(heads.session_name(key.key))
            try:
                self._expected += heads.unpack_head(key, row).sequence
            except HoldfastError:
                continue
        self._expected = max(self._expected - len(self._over), 0)
        self._nodes = self._merge([key.key for key, _ in found])

    def _session(self, name: str) -> int:
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self._names)
            self._names.append(name)
        return number

    def _merge(self, sessions: Sequence[bytes]) -> Iterator[_Node]:
        """Yield the tree's checkpoints, newest first; within a session by number, whatever the clocks said."""
        streams = [self._stream(key) for key in sessions]
        waiting: list[tuple[int, int, _Node]] = []
        for number, stream in enumerate(streams):
            if (first := next(stream, None)) is not None:
                heapq.heappush(waiting, (-first.at, number, first))
        while waiting:
            key, number, node = waiting[0]
            yield node
            following = next(streams[number], None)
            if following is None:
                heapq.heappop(waiting)
            else:
                # A clock that went back must not put a checkpoint above its child.
                heapq.heapreplace(waiting, (max(-following.at, key), number, following))

    def _stream(self, session: bytes) -> Iterator[_Node]:
        before: int | None = None
        size = FIRST_PAGE
        while True:
            page = run_inline(self._ctx.backend.session_records(session, before=before, limit=size))
            yield from self._nodes_of(page, session)
            if len(page) < size:
                return
            before, size = page[-1].sequence, min(size * 10, PAGE)

    def _nodes_of(self, page: Sequence[Record], session: bytes) -> list[_Node]:
        ctx, number = self._ctx, self._session(heads.session_name(session))
        read: list[StoredRecord | str] = []
        for found in page:
            try:
                read.append(lookup.unpack_listed(ctx, found, session))
            except HoldfastError as error:
                read.append(str(error))
        known = [item for item in read if not isinstance(item, str)]
        self._note_over(known)
        self._find_over({item.parent for item in known} - {item.id for item in known})
        nodes = []
        for found, stored in zip(page, read, strict=True):
            if isinstance(stored, str):
                nodes.append(_Node(UNKNOWN_TIME, found.id, number, found.sequence, None, 0, stored, False))
            else:
                header = stored.header
                flags, is_expired = _flags(ctx, header), stored.id in self._over
                nodes.append(
                    _Node(header["at"], found.id, number, found.sequence, header.get("parent"), flags, None, is_expired)
                )
        return nodes

    def _note_over(self, found: Iterable[StoredRecord]) -> set[bytes | None]:
        """Note which of these have expired, and return the parents of those."""
        timed = [item for item in found if item.is_tombstone or "ttl" in item.header]
        over = run_inline(lookup.find_expired(self._ctx, timed)) if timed else ()
        gone = {item.id: item.parent for item in timed if item.id in over}
        self._over |= gone
        return set(gone.values())

    def _find_over(self, wanted: set[bytes | None]) -> None:
        """Find out which of these checkpoints have expired, with their ancestors up to a live one."""
        while unknown := [
            id_ for id_ in wanted if id_ is not None and id_ not in self._over and id_ not in self._place
        ]:
            read = []
            for id_, found in zip(unknown, run_inline(self._ctx.backend.records(unknown)), strict=True):
                try:
                    if found is not None:
                        read.append(record.unpack(self._ctx.codec, found.data, expected_id=id_))
                except HoldfastError:
                    continue  # it has a row of its own, which says so
            wanted = self._note_over(read)

    def _lay_out(self, count: int | None) -> None:
        """Lay out so many rows, or all."""
        while not self._is_done and (count is None or len(self._old) + len(self._new) < count):
            node = next(self._nodes, None)
            if node is None:
                self._is_done = True
                self._children = {}
            elif not node.is_expired and node.id not in self._place:
                self._draw(node)

    def _live_parent(self, id_: bytes | None) -> bytes | None:
        """Return the nearest ancestor that is not known to be over."""
        if id_ not in self._over:
            return id_
        for _ in range(len(self._over) + 1):
            if id_ is None or id_ not in self._over:
                return id_
            id_ = self._over[id_]
        return None

    def _lead(self, lane: int, target: bytes | None) -> None:
        """Let a lane lead to a checkpoint below, or end it."""
        if (self._waiting[lane] is None) != (target is None):
            self._passing = {}
        self._waiting[lane] = target
        if target is not None:
            insort(self._leading.setdefault(target, []), lane)
            return
        while self._waiting and self._waiting[-1] is None:
            self._waiting.pop()

    def _draw(self, node: _Node) -> None:
        waiting = self._waiting
        lanes = self._leading.pop(node.id, None)
        joins: tuple[int, ...]
        if lanes is None:
            lane, joins = next((i for i, target in enumerate(waiting) if target is None), len(waiting)), ()
            if lane == len(waiting):
                waiting.append(None)
        else:
            lane, joins = lanes[0], tuple(lanes[1:])
        through = None if joins else self._passing.get(lane)
        if through is None:
            through = tuple(
                i for i, target in enumerate(waiting) if target is not None and i != lane and i not in joins
            )
            self._widest = max(self._widest, lane, *through, *joins)
            if lanes is not None and not joins:
                self._passing[lane] = through
        flags = node.flags | (0 if lanes else LEAF) | (BEGINS if joins else 0)
        place = len(self._old)
        self._old.add(node, lane, through, joins, flags)
        self._place[node.id] = place
        if node.damage is not None:
            self._damage[node.id] = node.damage
        for child in self._children.pop(node.id, ()):
            self._old.parent[child] = place
        parent = self._live_parent(node.parent)
        if parent is not None and parent in self._place:  # drawn above, by its clock
            self._old.parent[place], parent = self._place[parent], None
        elif parent is not None:
            self._children.setdefault(parent, []).append(place)
        for join in reversed(joins):
            self._lead(join, None)
        self._lead(lane, parent)

    def _finish_later(self) -> None:
        """Lay out the rest in a thread: the next request may be for any row."""
        if self._is_done or self._thread is not None:
            return
        self._thread = threading.Thread(target=self._finish_aside, name="holdfast-layout", daemon=True)
        self._thread.start()

    def _finish_aside(self) -> None:
        with suppress(HoldfastError):  # the request for such a row reports it
            self._finish()

    def _finish(self, is_enough: Callable[[], bool] = lambda: False) -> None:
        """Lay out all rows, or as many as are enough. Between any two chunks, others get the lock."""
        began = self._began
        while True:
            sleep(SHORT_PAUSE)
            with self._gate:
                pass
            with self._lock:
                if self._is_done or self._began != began or is_enough():
                    return
                self._lay_out(len(self._old) + len(self._new) + CHUNK)

    # -- changes -----------------------------------------------------------------------------------------------------

    def update(self) -> None:
        """Add the checkpoints that were saved since. A new layout begins at most every two seconds."""
        with self._hold_lock():
            self._is_stale = self._is_stale or not (self._is_same_history() and self._add_changes())
            if self._is_stale and monotonic() - self._began_at > REST_SECONDS:
                self._begin()

    def _is_same_history(self) -> bool:
        """Return whether no checkpoint has expired, or come back, since the last time."""
        self._operation, is_same = follow_removals(self._ctx, self._operation)
        return is_same

    def _add_changes(self) -> bool:
        for _ in range(MOST_CHANGES // PAGE):
            page = run_inline(self._ctx.backend.changes(self._position, PAGE))
            for change in page:
                self._position = change.position
                found = change.record
                try:
                    stored = record.unpack(self._ctx.codec, found.data, expected_id=found.id)
                except CorruptError:
                    return False
                if stored.tree == self._tree and stored.id not in self._place and not self._add(stored):
                    return False
            if len(page) < PAGE:
                return True
        return False

    def _add(self, stored: StoredRecord) -> bool:
        """Add a checkpoint as the newest row; False if there is no lane for it from its parent upward."""
        parent = self._live_parent(stored.parent)
        if stored.is_tombstone or parent is None or (place := self._place.get(parent)) is None:
            return False
        row = self._number(place)
        if row > DEEPEST_ADDITION:
            return False
        above = [self._find_row(number) for number in range(row)]
        used: set[int] = set()
        for rows, i in above:
            used |= {rows.lane[i], *rows.lanes(rows.through[i]), *rows.lanes(rows.joins[i])}
        rows, i = self._find_row(row)
        if rows.flags[i] & LEAF:
            lane, joins = rows.lane[i], rows.lanes(rows.joins[i])
            if lane in used:
                return False
            rows.flags[i] &= ~LEAF
        else:
            used |= {rows.lane[i], *rows.lanes(rows.through[i]), *rows.lanes(rows.joins[i])}
            lane = next(free for free in range(len(used) + 1) if free not in used)
            joins = tuple(sorted((*rows.lanes(rows.joins[i]), lane)))
            rows.joins[i] = rows.number(joins)
            rows.flags[i] |= BEGINS
        for other, j in above:
            other.through[j] = other.number(tuple(sorted((*other.lanes(other.through[j]), lane))))
        number = self._session(stored.session)
        flags = _flags(self._ctx, stored.header)
        node = _Node(stored.header["at"], stored.id, number, stored.sequence, parent, flags, None, is_expired=False)
        # Lines of other heads begin below the new row: nothing passes by it but lines to rows above.
        self._new.add(node, lane, (), (), node.flags | LEAF)
        self._new.parent[-1] = place
        self._place[stored.id] = -1 - len(self._new)
        self._widest = max(self._widest, lane)
        return True


def _flags(ctx: StoreContext, header: Mapping[str, Any]) -> int:
    flags = HANDOFF if header.get("to") is not None else 0
    metadata = header.get("meta")
    if isinstance(metadata, bytes) and b"failed" in metadata:
        try:
            decoded = ctx.codec.decode(metadata, path="metadata")
        except HoldfastError:
            return flags
        if isinstance(decoded, dict) and decoded.get("failed"):
            flags |= FAILED
    return flags
