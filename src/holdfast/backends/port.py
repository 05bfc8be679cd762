"""The port: the contract between holdfast and a store.

A backend stores four kinds of things as opaque bytes and knows nothing of agents:

- **records**, one per checkpoint, found by id and, within a session, by sequence number. A record
  is immutable, with one exception: it may be *replaced*, by a tombstone or back (compare-and-set on
  its bytes);
- **segments**, pieces of append-only logs. A segment covers the elements `[first, first + length)`
  of its log. The segments of a log don't overlap; a log's *tail* is the end of its last segment, 0
  if it has none;
- **blobs**, found by the SHA-256 of their content, each with the time of the last commit that wrote
  it;
- **rows** `(tree, space, key) → value`, small and versioned: heads, leases, pins, everything that
  is not state. The tree `STORE` (empty) holds the rows that belong to the whole store.

`commit` is the only verb that changes anything a reader can see. It is atomic: all of a `Commit` or
nothing. It is durable when it returns, even if the process then dies. Everything in a commit
belongs to one tree, so a sharded store can keep a tree in one shard. The exception are `STORE`
rows: they may become visible before the rest, even when the rest is refused.

The conditions of a commit are checked atomically with its changes: each `RowWrite.expect`, each
`SegmentWrite.tail`, each id in `require`, each row in `require_rows`, each `replaces`, and that a
new record's id and its session's sequence number are free. If one does not hold, nothing is changed
and `CommitConflict` says which. Deletions are not conditions: an entry that no longer matches is
left alone.

Every new record gets a *position*, a whole number from 1 on. `changes` returns records in that
order, and a reader that remembers its last position continues from there. Two rules make this safe.
A position is never given twice, not even after the record with the highest one was deleted. Once a
reader has seen a position (or `last_change` has named it), no record appears at a lower one. A
commit that could see another one's effects has the higher positions, so within a session they rise
with the sequence numbers; the records of one commit have theirs in its order. There may be gaps. A
replaced record keeps its position; that of a deleted record disappears. A *feed* is the part of this
order that has the records written with its name; a record keeps its feed, too. Where writers exclude each
other, a counter is enough. Where they don't, a position that is drawn before its transaction
commits may become visible after higher ones. Then `changes` and `last_change` must stop below the
lowest position that is drawn and not decided. Readers may have to wait; they never skip a record.

Blocking backends implement `BlockingBackend`; the bridges (`bridge/`) make them awaitable. Backends
behind a network implement `AsyncBackend`; `bridge/event_loop.py` is their bridge, and
`bridge/blocking.py` makes them blocking for callers without an event loop. Identifiers from outside
(sessions, row keys) are any bytes: they are data, never part of SQL, of a path or of a key's
structure. The tests in `holdfast.testing` spell out the contract; every backend runs them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

from holdfast.backends.process_lock import ProcessLock

T = TypeVar("T")

STORE = b""

ANY_VERSION = -1
ABSENT = 0

MAX_LOG_ELEMENTS = 1 << 28  # the limit of a log: the next element opens a new one


class RowKey(NamedTuple):
    space: str  # one of our own: a short lowercase word
    key: bytes
    tree: bytes = STORE


class UnreadableBytes(bytes):
    """The bytes of a record or row of a sealed store that can't be opened: none. `error` says why.

    What reads them raises it, so that one such item does not hide the others.
    """

    error: Exception

    @classmethod
    def because(cls, error: Exception) -> UnreadableBytes:
        made = cls()
        made.error = error
        return made


class Row(NamedTuple):
    value: bytes
    version: int  # 1 for the first value, incremented by every write


def end_of_prefix(prefix: bytes) -> bytes | None:
    """Return the first key greater than all that begin with a prefix; None if there is none."""
    rest = prefix.rstrip(b"\xff")
    return rest[:-1] + bytes((rest[-1] + 1,)) if rest else None


def check_readable(page: list[tuple[RowKey, Row]]) -> list[tuple[RowKey, Row]]:
    """Return scanned rows, for callers that go by their keys.

    Raise the error of a row that can't be opened: its key is not known, either.
    """
    for _, row in page:
        if isinstance(row.value, UnreadableBytes):
            raise row.value.error
    return page


class RowWrite(NamedTuple):
    """A write of `value` to a row (None deletes it), if the row is as expected.

    The row's version must be `expect` (`ABSENT`, a version, or `ANY_VERSION`), and its value must
    be `was` if that is given. A writer that builds on an unacknowledged commit knows which version
    that commit leads to. Only the value proves that it was that commit.
    """

    key: RowKey
    value: bytes | None
    expect: int = ANY_VERSION
    was: bytes | None = None


class Labels(NamedTuple):
    """Copies of header fields for people who inspect the store; holdfast never reads them back."""

    agent_id: str
    framework: str
    step_index: int
    step_name: str | None
    parent: bytes | None
    created_at_us: int
    handoff_target: str | None


class RecordWrite(NamedTuple):
    """A new record, or, with `replaces`, new bytes for the record of that id.

    The replacement requires that the record has the bytes `replaces`.
    """

    id: bytes
    session: bytes
    sequence: int
    data: bytes
    labels: Labels | None = None
    expires_at_us: int | None = None  # a hint for stores with a native TTL
    replaces: bytes | None = None
    spans: Sequence[Span] = ()  # a hint: the spans that reading its state needs; see `AsyncBackend`
    feed: bytes | None = None  # of a new record: the feed that `changes` finds it by, too


class Record(NamedTuple):
    id: bytes
    session: bytes
    sequence: int
    data: bytes


class Change(NamedTuple):
    """A record and its position in the order in which records became visible."""

    position: int
    record: Record


class SegmentWrite(NamedTuple):
    """A write of the elements `[first, first + length)` to a log whose tail must be `tail`.

    With `first == tail` this is an append. With `first < tail` the segment replaces all segments
    from `first` on, and one must begin at `first`: this is how small segments are sealed into one.
    With several writes to one log in a commit, each begins where the one before ended; only the
    first one's `tail` is compared with the store.
    """

    log: int
    first: int
    length: int
    data: bytes
    tail: int


class SegmentDelete(NamedTuple):
    """A deletion of the segment `[first, first + length)`, with `pieces` of it put in its place.

    Each piece (first, length, data) lies within the segment. If no segment has exactly these bounds
    (it was sealed meanwhile), nothing is changed.
    """

    log: int
    first: int
    length: int
    pieces: tuple[tuple[int, int, bytes], ...] = ()


class Segment(NamedTuple):
    first: int
    length: int
    data: bytes


class Span(NamedTuple):
    """The elements `[first, end)` of a log."""

    log: int
    first: int
    end: int


class SegmentInfo(NamedTuple):
    log: int
    first: int
    length: int
    size: int


class BlobInfo(NamedTuple):
    hash: bytes
    size: int
    written_at_us: int


@dataclass(slots=True)
class Commit:
    """One atomic change to a tree."""

    tree: bytes
    record: RecordWrite | None = None
    more_records: Sequence[RecordWrite] = ()  # new or with `replaces`; ids and sequence numbers of a session are unique
    segments: Sequence[SegmentWrite] = ()
    blobs: Mapping[bytes, bytes] = field(default_factory=dict)
    rows: Sequence[RowWrite] = ()
    require: Sequence[tuple[bytes, bytes]] = ()  # (id, prefix): a record must exist whose data begins so
    require_rows: Sequence[tuple[RowKey, int]] = ()  # (key, version or ABSENT), of rows of the tree
    delete_records: Sequence[tuple[bytes, bytes]] = ()  # (id, data): deleted if it has this data, else left alone
    delete_segments: Sequence[SegmentDelete] = ()
    # address of a blob → deleted if last written before this (µs)
    delete_blobs: Mapping[bytes, int] = field(default_factory=dict)

    def list_records(self) -> Sequence[RecordWrite]:
        """Return every record that the commit writes."""
        return self.more_records if self.record is None else (self.record, *self.more_records)


class CommitConflict(Exception):  # noqa: N818 - a signal between layers, not an error people see
    """A condition of the commit did not hold; nothing was changed.

    `kind` is row, segment, record, replace or require.
    """

    def __init__(self, kind: str, detail: object = None) -> None:
        super().__init__(kind, detail)
        self.kind = kind
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The abilities of a backend, as data. The contract suite skips what a backend can't do."""

    name: str
    durable: bool = True  # survives the process
    shared: bool = True  # several processes may use it at once
    durability: str = "full"
    location: str = ""  # where it is, for people to read
    awaitable: bool = False  # its verbs are coroutines: it is an `AsyncBackend`
    now_us: Callable[[], int] | None = None  # the store's own clock, shared by all its users; None for the machine's
    seen_is_durable: bool = True  # whether data that a reader sees is as durable as `durability` says. If not, an empty
    # commit waits until everything that was committed in its tree is durable
    directory: str | None = None  # of a store on this machine: its processes lock it to take turns
    timeout: float = 30.0  # seconds that a call waits for other writers before it raises `StoreBusyError`
    feeds: bool = False  # `changes` takes a feed; else its readers filter all changes
    splits: bool = False  # rows of the store (`STORE`) are committed before those of the commit's tree, not with them
    sealed: bool = False  # what it stores is encrypted. Rows whose keys are hidden are scanned in an order of their own


class Usage(NamedTuple):
    """The size of the store, in counts and bytes; `total_bytes` includes the store's own overhead."""

    records: int = 0
    segments: int = 0
    blobs: int = 0
    rows: int = 0
    record_bytes: int = 0
    segment_bytes: int = 0
    blob_bytes: int = 0
    row_bytes: int = 0
    total_bytes: int = 0


class Finding(NamedTuple):
    """A finding of `holdfast doctor` about a store's server: `status` is ok, warn or fail."""

    name: str
    status: str
    found: str
    advice: str = ""


class BlockingBackend(Protocol):
    """A store with blocking calls. Every method may be called from any thread.

    Methods raise `StoreError` when the store can't be reached, read or written, `CorruptError` when
    it finds its own bytes damaged, and otherwise only the errors that they name.

    A backend may have the method `get_ready() -> None`, which warms it up. It is called before the
    others, in the thread that will call them, while no caller waits. It does ahead the work of the
    first call and changes nothing; its errors are dropped.
    """

    @property
    def capabilities(self) -> Capabilities: ...

    def commit_all(self, commits: Sequence[Commit]) -> list[BaseException | None]:
        """Carry out independent commits, together if that is cheaper: one outcome each, in order.

        None means done and durable; `CommitConflict` or `StoreError` say why not. A `StoreError`
        leaves the outcome open only if the store itself can't tell. Later commits see the effects
        of earlier ones.
        """

    def records(self, ids: Sequence[bytes]) -> list[Record | None]:
        """Return the records of these ids, None for each that is missing."""

    def session_records(self, session: bytes, *, before: int | None = None, limit: int | None = None) -> list[Record]:
        """Return records of a session, highest sequence first, below `before`, at most `limit`."""

    def find_ids(self, ending: str, limit: int = 2) -> list[bytes]:
        """Return ids whose hex digits end in `ending`, at most `limit`."""

    def segments(self, spans: Sequence[Span]) -> list[list[Segment]]:
        """Return the segments that overlap each span, in order. A missing segment is simply left out."""

    def blobs(self, hashes: Sequence[bytes]) -> list[bytes | None]:
        """Return the blobs of these hashes, None for each that is missing."""

    def rows(self, keys: Sequence[RowKey]) -> list[Row | None]:
        """Return the rows of these keys, None for each that is missing."""

    def scan(
        self, space: str, *, tree: bytes | None = None, prefix: bytes = b"", after: bytes | None = None,
        limit: int | None = None,
    ) -> list[tuple[RowKey, Row]]:  # fmt: skip
        """Return rows of a space in the order of (key, tree), of one tree, or of all for None.

        Keys begin with `prefix` and are greater than `after`; at most `limit` rows are returned.
        """

    def page_records(self, after: bytes | None, limit: int) -> list[Record]:
        """Return records in the order of ids, from the first one greater than `after`.

        This serves to walk the whole store.
        """

    def changes(self, after: int, limit: int, feed: bytes | None = None) -> list[Change]:
        """Return records in the order in which they became visible, at most `limit`.

        They begin at the first position greater than `after` (0 for the beginning). Readers poll
        this: an empty answer must be cheap. With `feed`, only its records are returned, in a time
        that does not depend on the others. It is given only if `Capabilities.feeds` is True.
        """

    def recent(self, before: int | None, limit: int) -> list[Change]:
        """Return records from the newest position downwards, below `before`, at most `limit`.

        None for `before` begins at the newest. This is not a cursor: where positions are decided
        late, a record may appear above one that was returned.
        """

    def last_change(self) -> int:
        """Return the highest position so far, 0 if none: no record will appear at or below it."""

    def page_segments(self, after: tuple[int, int] | None, limit: int) -> list[SegmentInfo]:
        """Return segments without data in the order of (log, first), from the first one after `after`."""

    def page_blobs(self, after: bytes | None, limit: int) -> list[BlobInfo]:
        """Return blobs without data in the order of hashes, from the first one greater than `after`."""

    def usage(self) -> Usage:
        """Return counts and bytes. May take time proportional to the store."""

    def compact(self) -> None:
        """Return space that deletions freed to the file system, where that is possible at once."""

    def close(self) -> None:
        """Release everything. Later calls raise `StoreError`. Closing twice is allowed."""


class AsyncBackend(Protocol):
    """A store behind a network: the verbs of `BlockingBackend`, with the same meanings, as coroutines.

    They may be called from several event loops, one after the other or at once in several threads.
    Whatever belongs to a loop (connections, locks) is kept per loop.

    A backend may have further, optional methods:

    - `async def wait_for_notify() -> None` returns when another process may have committed
      something. It is a hint, awaited while a reader follows the store and cancelled afterwards;
      polling finds what it misses.
    - `async def record_and_segments(id_) -> tuple[Record | None, dict[Span, list[Segment]]]`
      returns the record and, in the same round trip, the segments of the `spans` that it was
      written with. The caller asks for missing ones with `segments`.
    - `def without_loop() -> AsyncBackend | None` returns the same store for callers without an event
      loop. Its coroutines never suspend, and any thread may step them; closing one closes both.
      Without this method, or if it returns None, an event loop in a thread of its own serves these
      callers (`bridge/blocking.py`).
    - Three methods serve a store that detects expired records by `RecordWrite.expires_at_us`. `def
      ask_to_collect(collect)` receives a callback, which the store calls now and then, from its
      event loop or a caller's thread, when garbage collection may be due. The callback asks `async def
      take_turn_to_collect() -> bool`, collects if it is its turn, and then calls `async def
      was_collected() -> None`.
    - Three methods describe a server: `async def find_damage() -> list[str]` returns
      inconsistencies in the store's own bookkeeping, for `verify`; `async def examine() ->
      list[Finding]` its settings and rights, for `holdfast doctor`; `async def why_undecided() ->
      str | None` what keeps `changes` from returning committed records.
    """

    @property
    def capabilities(self) -> Capabilities:
        """Return the capabilities, with `awaitable=True`."""

    async def commit_all(self, commits: Sequence[Commit]) -> list[BaseException | None]: ...

    async def records(self, ids: Sequence[bytes]) -> list[Record | None]: ...

    async def session_records(
        self, session: bytes, *, before: int | None = None, limit: int | None = None
    ) -> list[Record]: ...

    async def find_ids(self, ending: str, limit: int = 2) -> list[bytes]: ...

    async def segments(self, spans: Sequence[Span]) -> list[list[Segment]]: ...

    async def blobs(self, hashes: Sequence[bytes]) -> list[bytes | None]: ...

    async def rows(self, keys: Sequence[RowKey]) -> list[Row | None]: ...

    async def scan(
        self, space: str, *, tree: bytes | None = None, prefix: bytes = b"", after: bytes | None = None,
        limit: int | None = None,
    ) -> list[tuple[RowKey, Row]]: ...  # fmt: skip

    async def page_records(self, after: bytes | None, limit: int) -> list[Record]: ...

    async def changes(self, after: int, limit: int, feed: bytes | None = None) -> list[Change]: ...

    async def recent(self, before: int | None, limit: int) -> list[Change]: ...

    async def last_change(self) -> int: ...

    async def page_segments(self, after: tuple[int, int] | None, limit: int) -> list[SegmentInfo]: ...

    async def page_blobs(self, after: bytes | None, limit: int) -> list[BlobInfo]: ...

    async def usage(self) -> Usage: ...

    async def compact(self) -> None: ...

    async def close(self) -> None: ...


AnyBackend = BlockingBackend | AsyncBackend


class Backend(Protocol):
    """The awaitable port: the same verbs, as operations use them."""

    @property
    def capabilities(self) -> Capabilities: ...

    def commit(self, commit: Commit) -> Awaitable[None]:
        """Enqueue one commit and return an awaitable that raises its outcome.

        Its place in the order of commits is fixed when this returns.
        """

    def lock(self, key: bytes) -> AbstractAsyncContextManager[object]:
        """Return a lock that serialises the holders of one key within this process."""

    def fair_lock(self, key: bytes, seconds: float) -> AbstractAsyncContextManager[bool]:
        """Return a fair lock on a key: first come, first served, False after `seconds` without a turn.

        It spares conflicts and excludes no writer for good: a holder that is stuck is passed over.
        """

    def process_lock(self, seconds: float, waited: float) -> ProcessLock:
        """Return a lock between this machine's processes that write to the store, for those that use it.

        It is False if others hold it for long, or where there is no such lock. `seconds` are left
        to wait, and `waited` have passed already: a caller that has waited longer comes first.
        """

    async def run_on_store_thread(self, call: Callable[[], T]) -> T:
        """Run another blocking call (such as file I/O) the way that calls of the store run."""

    async def run_in_thread(self, call: Callable[[], T]) -> T:
        """Run a blocking call that may take long: calls of the store do not wait for it."""

    async def batch_reads(self, read: Callable[[Backend], Coroutine[Any, Any, T]]) -> T:
        """Await `read`, given the store, for calls that depend on each other.

        A store in a thread takes one hop for all of them.
        """

    def get_ready(self) -> None:
        """Warm up the connection in the background."""

    async def sleep(self, seconds: float) -> None:
        """Sleep without blocking an event loop."""

    @property
    def committed(self) -> int:
        """Return a counter that changes after every commit made through this object."""

    def wait_for_commit(self, seen: int, seconds: float) -> Awaitable[bool]:
        """Wait until `committed` differs from `seen`, another process may have committed, or time is up.

        Return False if this object was closed: there will be no news.
        """

    async def records(self, ids: Sequence[bytes]) -> list[Record | None]: ...

    async def record_and_segments(self, id_: bytes) -> tuple[Record | None, Mapping[Span, list[Segment]]]:
        """Return the record of an id, None if missing, and those of its segments that came along.

        These may be all, some or none of them.
        """

    async def session_records(
        self, session: bytes, *, before: int | None = None, limit: int | None = None
    ) -> list[Record]: ...

    async def find_ids(self, ending: str, limit: int = 2) -> list[bytes]: ...

    async def segments(self, spans: Sequence[Span]) -> list[list[Segment]]: ...

    async def blobs(self, hashes: Sequence[bytes]) -> list[bytes | None]: ...

    def address(self, hash_: bytes) -> bytes:
        """Return the address of a blob, by which `page_blobs` lists it and `delete_blobs` deletes it.

        It is its hash, except on a sealed store.
        """

    async def rows(self, keys: Sequence[RowKey]) -> list[Row | None]: ...

    async def scan(
        self, space: str, *, tree: bytes | None = None, prefix: bytes = b"", after: bytes | None = None,
        limit: int | None = None,
    ) -> list[tuple[RowKey, Row]]: ...  # fmt: skip

    async def page_records(self, after: bytes | None, limit: int) -> list[Record]: ...

    async def changes(self, after: int, limit: int, feed: bytes | None = None) -> list[Change]: ...

    async def recent(self, before: int | None, limit: int) -> list[Change]: ...

    async def last_change(self) -> int: ...

    async def page_segments(self, after: tuple[int, int] | None, limit: int) -> list[SegmentInfo]: ...

    async def page_blobs(self, after: bytes | None, limit: int) -> list[BlobInfo]: ...

    async def usage(self) -> Usage: ...

    async def find_damage(self) -> list[str]:
        """Return inconsistencies in the store's own bookkeeping, as sentences."""

    async def examine(self) -> list[Finding]:
        """Return findings about the store's server and its settings."""

    async def why_undecided(self) -> str | None:
        """Return why `changes` does not return all committed records yet; None if it does."""

    async def compact(self) -> None: ...

    async def close(self) -> None: ...
