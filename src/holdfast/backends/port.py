"""The port: what holdfast asks of a store.

A backend keeps four kinds of things as opaque bytes and knows nothing of agents:

- **records**, one per checkpoint, found by id and, within a session, by sequence number. Immutable, but for one thing:
  a record may be *replaced*, by a tombstone or back (compare-and-set on its bytes);
- **runs**, pieces of append-only logs. A run covers the elements `[first, first + length)` of its log. The runs of a
  log don't overlap; a log's *tail* is the end of its last run, 0 if it has none;
- **blobs**, found by the SHA-256 of their content, each with the time of the last commit that wrote it;
- **rows** `(tree, space, key) → value`, small and versioned: heads, leases, pins, whatever is not state. The tree
  `STORE` (empty) holds the rows that belong to the whole store.

`commit` is the only verb that changes anything a reader can see, and it is atomic: all of a `Commit`, or nothing,
durable when it returns, whatever happens to the process. Everything in a commit belongs to one tree, so that a sharded
store can keep a tree in one shard, but for its `STORE` rows: these may become visible before the rest, even when the
rest is refused.

The conditions of a commit are checked together with its changes, with nothing in between: each `RowWrite.expect`,
each `RunWrite.tail`, each id in `require`, each row in `require_rows`, each `replaces`, and that a new record's id is not taken (nor its session's
sequence number). If one does not hold, nothing is changed and `CommitConflict` says which. Deletions are not
conditions: what is no longer as named is left alone.

Every new record gets a *position*, a whole number from 1 on: `changes` gives the records in that order, and a reader that
remembers the last position it was given goes on from there. For that a position is never given twice, not even after
the record that had the highest one was deleted; and once a reader was given a position (or `last_change` has named
it), no record appears at a lower one. A commit that could see another one's effects has the higher positions, so within
a session they rise with the sequence numbers; the records of one commit have theirs in its order. Numbers may be left
out. A record that is replaced keeps its position; a deleted one's is simply not there any more. Where writers exclude
each other, a counter does. Where they don't, a position that is drawn before its transaction commits may become visible
after higher ones: then `changes` and `last_change` must stop below the lowest position that is drawn and not decided.
Readers may be made to wait, never to skip.

Blocking backends implement `BlockingBackend`, the bridges (`bridge.py`) make them awaitable; those behind a network implement
`AsyncBackend`, `direct.py` is their bridge, and `loop_thread.py` makes them blocking for who has no event loop. Identifiers from outside (sessions,
row keys) are any bytes: they are data, never part of SQL, of a path or of a key's structure. The contract is spelled
out as tests in `holdfast.testing`, which every backend runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

T = TypeVar("T")

STORE = b""

ANY_VERSION = -1
ABSENT = 0

MAX_LOG_ELEMENTS = 1 << 28  # a log that has as many takes no more: the next element opens a new one


class RowKey(NamedTuple):
    space: str  # one of ours: a short lowercase word
    key: bytes
    tree: bytes = STORE


class Row(NamedTuple):
    value: bytes
    version: int  # 1 for the first value, one more for each that follows


class RowWrite(NamedTuple):
    """Puts `value` (None deletes) if the row's version is `expect` (`ABSENT`, a version, or `ANY_VERSION`), and its
    value, if that is given, is `was`. Who builds on a commit that is not acknowledged yet knows which version it will
    lead to, but only the value tells whether it was that commit which led there."""

    key: RowKey
    value: bytes | None
    expect: int = ANY_VERSION
    was: bytes | None = None


class Labels(NamedTuple):
    """Copies of header fields for people who look into the store; never read back by holdfast."""

    agent_id: str
    framework: str
    step_index: int
    step_name: str | None
    parent: bytes | None
    created_at_us: int
    handoff_target: str | None


class RecordWrite(NamedTuple):
    """A new record, or, with `replaces`, other bytes for the record of that id, if it has the bytes `replaces`."""

    id: bytes
    session: bytes
    sequence: int
    data: bytes
    labels: Labels | None = None
    expires_at_us: int | None = None  # a hint for stores with a TTL of their own
    replaces: bytes | None = None
    spans: Sequence[Span] = ()  # a hint: what reading its state will ask for; see `AsyncBackend`


class Record(NamedTuple):
    id: bytes
    session: bytes
    sequence: int
    data: bytes


class Change(NamedTuple):
    """A record and its position in the order in which records became visible."""

    position: int
    record: Record


class RunWrite(NamedTuple):
    """Writes the elements `[first, first + length)` of a log whose tail must be `tail`.

    With `first == tail` this is an append. With `first < tail` the run takes the place of all runs from `first` on,
    of which one must begin at `first`: this is how small runs are sealed into one. Of several writes to one log in
    a commit, each begins where the one before ended; only the first one's `tail` is compared with the store.
    """

    log: int
    first: int
    length: int
    data: bytes
    tail: int


class RunDelete(NamedTuple):
    """Deletes the run `[first, first + length)`, and puts `pieces` (first, length, data), which lie within it, in its
    place. If there is no run of exactly these bounds (it was sealed meanwhile), it is left alone."""

    log: int
    first: int
    length: int
    pieces: tuple[tuple[int, int, bytes], ...] = ()


class Run(NamedTuple):
    first: int
    length: int
    data: bytes


class Span(NamedTuple):
    """The elements `[first, end)` of a log."""

    log: int
    first: int
    end: int


class RunInfo(NamedTuple):
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
    more_records: Sequence[RecordWrite] = ()  # new ones or with `replaces`; no id twice, no number of a session twice
    runs: Sequence[RunWrite] = ()
    blobs: Mapping[bytes, bytes] = field(default_factory=dict)
    rows: Sequence[RowWrite] = ()
    require: Sequence[tuple[bytes, bytes]] = ()  # (id, prefix): a record must be there whose data begins with it
    require_rows: Sequence[tuple[RowKey, int]] = ()  # (key, version or ABSENT): a row of the tree that must be so
    delete_records: Sequence[tuple[bytes, bytes]] = ()  # (id, data): deleted if there with that data, else left alone
    delete_runs: Sequence[RunDelete] = ()
    delete_blobs: Mapping[bytes, int] = field(default_factory=dict)  # hash → deleted if last written before this (µs)


class CommitConflict(Exception):  # noqa: N818 - a signal between layers, not an error people see
    """A condition of the commit did not hold; nothing was changed. `kind`: row, run, record, replace or require."""

    def __init__(self, kind: str, detail: object = None) -> None:
        super().__init__(kind, detail)
        self.kind = kind
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend can do, as data. The contract suite leaves out what a backend says it can't."""

    name: str
    durable: bool = True  # survives the process
    shared: bool = True  # several processes may use it at once
    durability: str = "full"
    location: str = ""  # where it is, for people
    awaitable: bool = False  # its verbs are coroutines: it is an `AsyncBackend`
    now_us: Callable[[], int] | None = None  # its own clock, that all its users go by; None is that of the machine
    seen_is_durable: bool = True  # what a reader sees is as durable as `durability` says. If not, a commit of nothing
    # waits until all that was committed in its tree is


class Usage(NamedTuple):
    """What is stored, in counts and in bytes; `total_bytes` includes the store's own overhead."""

    records: int = 0
    runs: int = 0
    blobs: int = 0
    rows: int = 0
    record_bytes: int = 0
    run_bytes: int = 0
    blob_bytes: int = 0
    row_bytes: int = 0
    total_bytes: int = 0


class BlockingBackend(Protocol):
    """A store that is reached by blocking calls. Every method may be called from any thread.

    Methods raise `StoreError` when the store can't be reached, read or written, `CorruptError` when it finds its own
    bytes damaged, and nothing else but what they name.

    A backend may have one more, `get_ready() -> None`: called in the thread that will call the others, before them and while
    nobody waits. It does what the first of them would otherwise have to, and changes nothing; what it raises, nobody hears.
    """

    @property
    def capabilities(self) -> Capabilities: ...

    def commit_all(self, commits: Sequence[Commit]) -> list[BaseException | None]:
        """Carries out independent commits, together if that is cheaper: one outcome each, in order.

        None says done and durable; `CommitConflict` or `StoreError` say why not. A `StoreError` leaves the outcome
        open only if the store itself can't tell. Later commits see the effects of earlier ones.
        """

    def records(self, ids: Sequence[bytes]) -> list[Record | None]:
        """The records of these ids, None where there is none."""

    def session_records(self, session: bytes, *, before: int | None = None, limit: int | None = None) -> list[Record]:
        """The records of a session, highest sequence first, below `before`, at most `limit`."""

    def find_ids(self, ending: str, limit: int = 2) -> list[bytes]:
        """Ids whose hex digits end in `ending`, at most `limit`."""

    def runs(self, spans: Sequence[Span]) -> list[list[Run]]:
        """For each span the runs that overlap it, in order. A missing one is simply not there."""

    def blobs(self, hashes: Sequence[bytes]) -> list[bytes | None]:
        """The blobs of these hashes, None where there is none."""

    def rows(self, keys: Sequence[RowKey]) -> list[Row | None]:
        """The rows of these keys, None where there is none."""

    def scan(
        self, space: str, *, tree: bytes | None = None, prefix: bytes = b"", after: bytes | None = None,
        limit: int | None = None,
    ) -> list[tuple[RowKey, Row]]:  # fmt: skip
        """Rows of a space in the order of (key, tree): of one tree, or of all for None; keys that begin with
        `prefix` and are greater than `after`; at most `limit`."""

    def page_records(self, after: bytes | None, limit: int) -> list[Record]:
        """Records in the order of their ids, from the first one greater than `after`: for walking the whole store."""

    def changes(self, after: int, limit: int) -> list[Change]:
        """Records in the order in which they became visible, from the first position greater than `after` (0 for the
        beginning), at most `limit`. It is asked again and again: nothing new must be cheap to say."""

    def last_change(self) -> int:
        """The highest position so far, 0 if there was none: no record will appear at it or below it."""

    def page_runs(self, after: tuple[int, int] | None, limit: int) -> list[RunInfo]:
        """Runs in the order of (log, first), from the first one greater than `after`, without their data."""

    def page_blobs(self, after: bytes | None, limit: int) -> list[BlobInfo]:
        """Blobs in the order of their hashes, from the first one greater than `after`, without their data."""

    def usage(self) -> Usage:
        """Counts and bytes. May take time proportional to the store."""

    def compact(self) -> None:
        """Gives space that deletions freed back to the file system, where that is possible at once."""

    def close(self) -> None:
        """Releases everything. Calls after it raise `StoreError`. Closing twice is allowed."""


class AsyncBackend(Protocol):
    """A store that is reached over a network: the verbs of `BlockingBackend`, with the same meanings, as coroutines.

    They may be called from several event loops, one after the other or at once in several threads: what belongs to a
    loop (connections, locks) is kept for each of them.

    A backend may have one more, `async def news() -> None`: it returns when another process may have committed something. It is
    a hint, awaited while somebody follows and cancelled when that is over; whatever it misses is found by looking.

    And another, `async def record_and_runs(id_) -> tuple[Record | None, dict[Span, list[Run]]]`: the record and, in the same
    round trip, the runs of the `spans` that it was written with. What is missing among these is asked for by `runs`.

    And `def without_loop() -> AsyncBackend`: the same store for who has no event loop, by coroutines that never suspend, which any
    thread may step; closing one closes both. Without it, an event loop in a thread of its own serves them (`loop_thread.py`).

    And three for a store that can tell what is over by `RecordWrite.expires_at_us`: `def ask_to_collect(collect)` is given a
    method to call, from its event loop and now and then, when it may be time to collect; that asks `async def
    take_turn_to_collect() -> bool`, collects if it is its turn, and then calls `async def was_collected() -> None`.
    """

    @property
    def capabilities(self) -> Capabilities:
        """With `awaitable=True`."""

    async def commit_all(self, commits: Sequence[Commit]) -> list[BaseException | None]: ...

    async def records(self, ids: Sequence[bytes]) -> list[Record | None]: ...

    async def session_records(
        self, session: bytes, *, before: int | None = None, limit: int | None = None
    ) -> list[Record]: ...

    async def find_ids(self, ending: str, limit: int = 2) -> list[bytes]: ...

    async def runs(self, spans: Sequence[Span]) -> list[list[Run]]: ...

    async def blobs(self, hashes: Sequence[bytes]) -> list[bytes | None]: ...

    async def rows(self, keys: Sequence[RowKey]) -> list[Row | None]: ...

    async def scan(
        self, space: str, *, tree: bytes | None = None, prefix: bytes = b"", after: bytes | None = None,
        limit: int | None = None,
    ) -> list[tuple[RowKey, Row]]: ...  # fmt: skip

    async def page_records(self, after: bytes | None, limit: int) -> list[Record]: ...

    async def changes(self, after: int, limit: int) -> list[Change]: ...

    async def last_change(self) -> int: ...

    async def page_runs(self, after: tuple[int, int] | None, limit: int) -> list[RunInfo]: ...

    async def page_blobs(self, after: bytes | None, limit: int) -> list[BlobInfo]: ...

    async def usage(self) -> Usage: ...

    async def compact(self) -> None: ...

    async def close(self) -> None: ...


AnyBackend = BlockingBackend | AsyncBackend


class AtOnce(Protocol):
    """A store that is asked on the caller's thread: what it is asked to do is done when the call returns."""

    def commit_at_once(self, commit: Commit) -> None:
        """`Backend.commit`, awaited."""

    def turn(self, key: bytes) -> LockedTurn:
        """As `Backend.turn`. Who keeps it need not ask for it again."""


class LockedTurn(AbstractAsyncContextManager[object], Protocol):
    """A turn that is taken by this lock, whether it is awaited or not."""

    @property
    def lock(self) -> AbstractContextManager[object]: ...


class Backend(Protocol):
    """The same verbs, awaitable: what operations see."""

    @property
    def capabilities(self) -> Capabilities: ...

    def commit(self, commit: Commit) -> Awaitable[None]:
        """One commit. It has its place in the order of commits when this returns; awaiting it raises its outcome."""

    def turn(self, key: bytes) -> AbstractAsyncContextManager[object]:
        """Lets the holders of one key, within this process, go one after the other."""

    async def aside(self, call: Callable[[], T]) -> T:
        """Carries out something else that blocks (reading or writing a file) in the way that the store is called."""

    async def apart(self, call: Callable[[], T]) -> T:
        """The same for what may take long: calls of the store do not wait for it."""

    async def together(
        self, read: Callable[[Backend], Coroutine[Any, Any, T]], beside: Callable[[T], Iterator[None]] | None = None
    ) -> T:
        """Reads of which each depends on the one before, and a commit perhaps, of the store that `read` is given. Where a call goes to another
        thread and back, all of them go there once; and that thread then steps through `beside`, while the caller has the
        answer already. Nobody waits for that: it may be cut short, or never be begun."""

    @property
    def at_once(self) -> AtOnce | None:
        """The same store, where callers' threads ask it themselves; None where they wait for somebody else who does."""

    @property
    def is_idle(self) -> bool:
        """Whether calls go to a thread that has nothing to do. Who has to go there may then as well do there all that it
        has to, by `together`: no commits of others wait to be made with its own."""

    def get_ready(self) -> None:
        """Does ahead, without making anybody wait, what the first calls would otherwise wait for."""

    async def sleep(self, seconds: float) -> None:
        """Lets time pass, without keeping an event loop from its work."""

    @property
    def committed(self) -> int:
        """A number that is another one after every commit made through this object."""

    def wait_for_commit(self, seen: int, seconds: float) -> Awaitable[bool]:
        """Waits until `committed` is no longer `seen`, until there may be news from elsewhere, or for so many seconds.
        False if this object was closed: there will be no news."""

    async def records(self, ids: Sequence[bytes]) -> list[Record | None]: ...

    async def record_and_runs(self, id_: bytes) -> tuple[Record | None, Mapping[Span, list[Run]]]:
        """The record of that id, None if there is none, and what of its runs came along: all, some, or nothing."""

    async def session_records(
        self, session: bytes, *, before: int | None = None, limit: int | None = None
    ) -> list[Record]: ...

    async def find_ids(self, ending: str, limit: int = 2) -> list[bytes]: ...

    async def runs(self, spans: Sequence[Span]) -> list[list[Run]]: ...

    async def blobs(self, hashes: Sequence[bytes]) -> list[bytes | None]: ...

    async def rows(self, keys: Sequence[RowKey]) -> list[Row | None]: ...

    async def scan(
        self, space: str, *, tree: bytes | None = None, prefix: bytes = b"", after: bytes | None = None,
        limit: int | None = None,
    ) -> list[tuple[RowKey, Row]]: ...  # fmt: skip

    async def page_records(self, after: bytes | None, limit: int) -> list[Record]: ...

    async def changes(self, after: int, limit: int) -> list[Change]: ...

    async def last_change(self) -> int: ...

    async def page_runs(self, after: tuple[int, int] | None, limit: int) -> list[RunInfo]: ...

    async def page_blobs(self, after: bytes | None, limit: int) -> list[BlobInfo]: ...

    async def usage(self) -> Usage: ...

    async def compact(self) -> None: ...

    async def close(self) -> None: ...
