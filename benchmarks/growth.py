"""How work grows with the store: `python -m benchmarks.growth [--quick] [--only sqlite|postgres] [--results DIR]`.

Counts what an operation does, not how long it takes: statements sent to the store, rows that the
store looked at, and lines of Python that ran. Counts are the same on a busy machine, and a loop
over all pairs of sessions shows in them.

Two ways to grow: more sessions of two checkpoints each, and more checkpoints in the same sessions.
What a person waits for (`save`, `latest`, `timeline`, `sessions(limit)`, `find`) must not grow at
all; what walks over the store (`gc`, `du`, `retain`, `verify`) may grow as the store does. Exits
with 1 if one of them grows faster.
"""

import argparse
import asyncio
import json
import math
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from benchmarks import environment, pages
from benchmarks.goals import Verdict
from benchmarks.subprocesses import ROOT
from benchmarks.tables import number, table
from holdfast import Client, Retention, SyncClient

PACKAGES = ("holdfast", "ormsgpack", "zstandard", "psycopg")
SESSIONS, CHECKPOINTS = (2_000, 4_000, 8_000), (10_000, 100_000)
QUICK_SESSIONS, QUICK_CHECKPOINTS = (150, 300, 600), (600, 2_400)
SESSIONS_OF_CHECKPOINTS, QUICK_SESSIONS_OF_CHECKPOINTS = 1_000, 100
AT_ONCE = 250  # tasks that fill a store
LINEAR, CONSTANT = 1.2, 0.1  # the highest exponents
VM_STEPS = 20  # instructions of SQLite's virtual machine that are counted as one row
# Below so many of a kind, what is counted is not growth: opening the store, a page more or less of an index.
FLOORS = {"statements": 20, "rows": 300, "lines": 3_000}

Counts = dict[str, int]
Operation = Callable[[SyncClient, "Store"], object]


def _any_session(store: "Store") -> str:
    return f"run-{store.sessions // 2:06d}"


CONSTANT_OPERATIONS: dict[str, Operation] = {
    "save": lambda client, store: client.save("agent", session_id=_any_session(store), execution_state={"n": 1}),
    "save in a new session": lambda client, store: client.save("agent", execution_state={"n": 1}),
    "latest(session)": lambda client, store: client.latest(session_id=_any_session(store)),
    "latest()": lambda client, store: client.latest(),
    "timeline(limit=5)": lambda client, store: client.timeline(session_id=_any_session(store), limit=5),
    "sessions(limit=20)": lambda client, store: client.sessions(limit=20),
    "find(ending)": lambda client, store: client.find(store.an_id[-8:]),
}
LINEAR_OPERATIONS: dict[str, Operation] = {
    "gc, nothing to do": lambda client, store: client.gc(dry_run=True),
    "du": lambda client, store: client.du(),
    "retain, dry run": lambda client, store: client.retain(Retention(keep_last=1), dry_run=True),
    "verify": lambda client, store: client.verify(),
}


@dataclass
class Store:
    """A store that was filled, how to open it, and how to count what it does."""

    url: str
    counted: "Callable[[], Any]"  # a context manager: what was asked of the store meanwhile, in a `Counts`
    sessions: int
    checkpoints: int
    an_id: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    settle: Callable[[], None] = lambda: None  # what a server does by itself, sooner or later

    async def fill(self) -> None:
        async with Client.open(self.url, **self.options) as client:
            each = self.checkpoints // self.sessions
            for start in range(0, self.sessions, AT_ONCE):
                names = [f"run-{one:06d}" for one in range(start, min(start + AT_ONCE, self.sessions))]
                made = await asyncio.gather(*(self._fill(client, name, each) for name in names))
            self.an_id = made[0]
        self.settle()

    async def _fill(self, client: Client, name: str, count: int) -> str:
        for step in range(count):
            made = await client.save("agent", session_id=name, execution_state={"step": step, "text": f"{name} {step}"})
        return made

    def count(self, operation: Operation) -> Counts:
        """What an operation does in a process that has just opened the store, less what opening it does."""
        return {kind: max(count - self._opening[kind], 0) for kind, count in self._count(operation).items()}

    @property
    def _opening(self) -> Counts:
        if not hasattr(self, "_of_opening"):
            self._of_opening = self._count(lambda client, store: None)
        return self._of_opening

    def _count(self, operation: Operation) -> Counts:
        lines = _Lines()
        with self.counted() as counts, SyncClient.open(self.url, **self.options) as client, lines:
            operation(client, self)
        return {**counts, "lines": lines.count}


class _Lines:
    """Counts the lines of Python that run in a `with` block, those of this thread."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> None:
        sys.settrace(self._trace)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "line":
            self.count += 1
        return self._trace


# -- stores ------------------------------------------------------------------------------------------------------------


@contextmanager
def _counted_sqlite() -> Iterator[Counts]:
    counts = {"statements": 0, "rows": 0}

    class Counted(sqlite3.Connection):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.set_trace_callback(self._statement)
            super().set_progress_handler(self._steps, VM_STEPS)

        def set_progress_handler(self, *_: object) -> None:
            """Keep the handler that counts: the store's own, which limits a call, would replace it."""

        def _statement(self, _: str) -> None:
            counts["statements"] += 1

        def _steps(self) -> int:
            counts["rows"] += 1
            return 0

    plain = sqlite3.connect
    sqlite3.connect = lambda *args, **kwargs: plain(*args, factory=Counted, **kwargs)
    try:
        yield counts
    finally:
        sqlite3.connect = plain


def sqlite_store(directory: Path, sessions: int, checkpoints: int) -> Store:
    path = directory / f"{sessions}-{checkpoints}.db"
    return Store(f"sqlite:///{path}", _counted_sqlite, sessions, checkpoints, options={"durability": "fast"})


def postgres_store(server: Any, sessions: int, checkpoints: int, *, quick: bool) -> Store:
    from benchmarks.local_servers import PostgresDatabase

    database = PostgresDatabase(server, f"growth_{sessions}_{checkpoints}")
    if quick:
        # The planner rightly scans tables this small. What a quick run can show is that an index bounds the work.
        for scan in ("enable_seqscan", "enable_hashjoin", "enable_mergejoin"):
            database.ask_nothing(f"ALTER DATABASE growth_{sessions}_{checkpoints} SET {scan} = off")
    asked = (
        "SELECT ARRAY[(SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()), "
        "(SELECT coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0) FROM pg_stat_user_tables)]::bigint[]"
    )

    @contextmanager
    def counted() -> Iterator[Counts]:
        # A connection tells what it did when it ends: so every operation has a client of its own.
        counts = {"statements": 0, "rows": 0}
        before = _settled(database, asked)
        yield counts
        after = _settled(database, asked)
        counts["statements"], counts["rows"] = (now - then for now, then in zip(after, before, strict=True))

    return Store(database.dsn, counted, sessions, checkpoints, settle=lambda: database.ask_nothing("VACUUM ANALYZE"))


def _settled(database: Any, query: str) -> list[int]:
    """The server's counts, once its other connections have ended and told theirs."""
    import time

    others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    while database.ask(others):
        time.sleep(0.01)
    database.ask_nothing("SELECT pg_stat_force_next_flush()")
    return database.ask(query)


# -- growth ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Growth:
    operation: str
    sizes: list[int]
    counts: list[Counts]
    highest: float

    def exponents(self) -> dict[str, float]:
        """Of each kind: the exponent between the smallest and the largest size."""
        span = math.log(self.sizes[-1] / self.sizes[0])
        first, last = self.counts[0], self.counts[-1]
        return {kind: math.log((last[kind] + floor) / (first[kind] + floor)) / span for kind, floor in FLOORS.items()}

    @property
    def is_too_fast(self) -> bool:
        return any(exponent > self.highest for exponent in self.exponents().values())


def measure(make: Callable[[int, int], Store], sizes: list[tuple[int, int]]) -> list[Growth]:
    counts: dict[str, list[Counts]] = {name: [] for name in (*CONSTANT_OPERATIONS, *LINEAR_OPERATIONS)}
    for sessions, checkpoints in sizes:
        store = make(sessions, checkpoints)
        asyncio.run(store.fill())
        for name, operation in (CONSTANT_OPERATIONS | LINEAR_OPERATIONS).items():
            store.count(operation)  # what it imports, and prepares once, is not counted
            counts[name].append(store.count(operation))
    grown = [checkpoints for _, checkpoints in sizes]
    return [
        Growth(name, grown, of_operation, CONSTANT if name in CONSTANT_OPERATIONS else LINEAR)
        for name, of_operation in counts.items()
    ]


def measure_all(make: Callable[[int, int], Store], *, quick: bool) -> dict[str, list[Growth]]:
    sessions = QUICK_SESSIONS_OF_CHECKPOINTS if quick else SESSIONS_OF_CHECKPOINTS
    return {
        "more sessions": measure(make, [(count, 2 * count) for count in (QUICK_SESSIONS if quick else SESSIONS)]),
        "more checkpoints": measure(
            make, [(sessions, count) for count in (QUICK_CHECKPOINTS if quick else CHECKPOINTS)]
        ),
    }


def verdicts(results: dict[str, Any]) -> list[Verdict]:
    found = []
    for store, ways in results["growth"].items():
        for way, growths in ways.items():
            for one in growths:
                fastest = max(one["exponents"].values())
                figure = f"{store}, {way}: exponent of the work of {one['operation']}"
                goal = f"≤ {one['highest']:g}"
                found.append(Verdict(figure, goal, f"{fastest:.2f}", fastest <= one["highest"], store.lower()))
    return found


def command(store: str) -> str:
    return f"python -m benchmarks.growth --only {store.removesuffix('ql')}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small stores: shows that it works")
    parser.add_argument("--only", choices=("sqlite", "postgres"))
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    given = parser.parse_args()
    measured: dict[str, dict[str, list[Growth]]] = {}
    with tempfile.TemporaryDirectory() as directory:
        results: dict[str, Any] = {"environment": environment.describe(Path(directory), PACKAGES)}
        if given.only != "postgres":
            measured["SQLite"] = measure_all(lambda *size: sqlite_store(_new(directory), *size), quick=given.quick)
        if given.only != "sqlite":
            from benchmarks.local_servers import postgres

            with postgres(None) as server:
                measured["PostgreSQL"] = measure_all(
                    lambda *size: postgres_store(server, *size, quick=given.quick), quick=given.quick
                )
    results["growth"] = {
        store: {way: [_as_json(one) for one in growths] for way, growths in ways.items()}
        for store, ways in measured.items()
    }
    given.results.mkdir(parents=True, exist_ok=True)
    (given.results / "growth.json").write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    page = "\n".join(_page(results, measured, quick=given.quick)) + "\n"
    (given.results / "growth.md").write_text(page, "utf-8")
    print(page)
    too_fast = [
        one.operation for ways in measured.values() for growths in ways.values() for one in growths if one.is_too_fast
    ]
    if too_fast:
        sys.exit(f"grows too fast: {', '.join(too_fast)}")


def _new(directory: str) -> Path:
    return Path(tempfile.mkdtemp(dir=directory))


def _as_json(growth: Growth) -> dict[str, Any]:
    return {
        "operation": growth.operation,
        "sizes": growth.sizes,
        "counts": growth.counts,
        "exponents": growth.exponents(),
        "highest": growth.highest,
    }


def _page(results: dict[str, Any], measured: dict[str, dict[str, list[Growth]]], *, quick: bool) -> Iterator[str]:
    yield from pages.head("Growth", results, software="SQLite and PostgreSQL", not_worth_quoting=quick)
    yield (
        "What one call does, in a process that has just opened the store: statements sent, rows that "
        "the store looked at (SQLite: "
        f"every {VM_STEPS} steps of its virtual machine count as one), lines of Python. The exponent "
        "is that of the kind that grows most, "
        "between the smallest and the largest size. Reproduce: `make bench-growth`."
    )
    for store, ways in measured.items():
        for way, growths in ways.items():
            yield ""
            yield f"## {store}, {way}"
            yield ""
            sizes = growths[0].sizes
            head = ["operation", *(f"{size:,}: statements / rows / lines" for size in sizes), "exponent", "at most", ""]
            yield from table(head, [_row(one) for one in growths])


def _row(growth: Growth) -> list[str]:
    counts = [" / ".join(number(count[kind]) for kind in FLOORS) for count in growth.counts]
    verdict = "**TOO FAST**" if growth.is_too_fast else "holds"
    return [growth.operation, *counts, f"{max(growth.exponents().values()):.2f}", f"{growth.highest:g}", verdict]


if __name__ == "__main__":
    main()
