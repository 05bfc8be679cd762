"""Commits to SQLite that something interrupts: Ctrl-C, an error that nobody expects. Everybody can go on."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from interrupts import Interrupts

from holdfast import SyncClient
from holdfast.backends.port import ABSENT, Commit, Labels, RowKey, RowWrite
from holdfast.backends.sqlite import commit as sqlite_commit
from holdfast.backends.sqlite.backend import SqliteBackend
from holdfast.testing.harness import TREE, record

KEY = RowKey("head", b"one", TREE)
SOON = 0.2  # seconds for which the others wait for the write lock


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def backend(path: Path) -> Iterator[SqliteBackend]:
    opened = SqliteBackend(path, timeout=SOON)
    yield opened
    opened.close()


@pytest.fixture
def client(backend: SqliteBackend) -> SyncClient:
    return SyncClient(backend)


def ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


def unexpected() -> None:
    raise ZeroDivisionError


def before_the_next_commit(monkeypatch: pytest.MonkeyPatch, happens) -> None:
    """Has something happen once, when everything is written, and not committed."""

    def apply(connection: sqlite3.Connection, commit: Commit, last: int) -> int:
        monkeypatch.undo()
        written = sqlite_commit.apply(connection, commit, last)
        happens()
        return written

    monkeypatch.setattr(sqlite_commit, "apply", apply)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(("happens", "kind"), [(ctrl_c, KeyboardInterrupt), (unexpected, ZeroDivisionError)])
@pytest.mark.parametrize("saved_before", [0, 3])
def test_an_interrupted_commit_lets_everybody_go_on(
    client: SyncClient, path: Path, monkeypatch, happens, kind, saved_before: int
):
    for n in range(saved_before):
        client.save("a", session_id="s", execution_state={"n": n})
    before_the_next_commit(monkeypatch, happens)
    with pytest.raises(kind) as kept:
        client.save("a", session_id="s", execution_state={"n": "never stored"})
    with SyncClient.sqlite(path, timeout=SOON) as other:
        other.save("a", session_id="t", execution_state={"n": "theirs"})
    client.save("a", session_id="s", execution_state={"n": "ours"})
    assert kept.value.__traceback__ is not None  # its frames refer to the cursor of the commit
    states = [client.restore(entry.checkpoint_id).execution_state["n"] for entry in client.timeline(session_id="s")]
    assert sorted(map(str, states)) == sorted(map(str, [*range(saved_before), "ours"]))


@pytest.mark.usefixtures("interruptible")
def test_a_second_interrupt_while_the_first_is_dealt_with_is_made_good_by_whoever_comes_next(
    backend: SqliteBackend, monkeypatch
):
    assert backend.commit_all([Commit(TREE, record(1), rows=[RowWrite(KEY, b"first", ABSENT)])]) == [None]
    discard = SqliteBackend._discard

    def interrupted(self: SqliteBackend, role: str) -> None:
        monkeypatch.setattr(SqliteBackend, "_discard", discard)
        ctrl_c()

    def twice() -> None:
        monkeypatch.setattr(SqliteBackend, "_discard", interrupted)
        ctrl_c()

    for go_on in (lambda: backend.rows([KEY]), lambda: backend.commit_all([])):
        before_the_next_commit(monkeypatch, twice)
        with pytest.raises(KeyboardInterrupt):
            backend.commit_all([Commit(TREE, record(2), rows=[RowWrite(KEY, b"never stored", 1)])])
        assert go_on() in ([(b"first", 1)], [])
    assert backend.commit_all([Commit(TREE, record(2), rows=[RowWrite(KEY, b"second", 1)])]) == [None]


def test_a_commit_that_nobody_could_expect_fails_alone(backend: SqliteBackend, path: Path):
    """A number that SQLite does not take: the checks above let none through."""
    labels = Labels("agent", "custom", 2**63, None, None, 0, None)
    impossible = Commit(TREE, record(2)._replace(labels=labels), rows=[RowWrite(KEY, b"impossible", 1)])
    healthy = [
        Commit(TREE, record(1), rows=[RowWrite(KEY, b"first", ABSENT)]),
        Commit(TREE, record(3), rows=[RowWrite(KEY, b"third", 1)]),
    ]
    outcomes = backend.commit_all([healthy[0], impossible, healthy[1]])
    assert [type(outcome) for outcome in outcomes] == [type(None), OverflowError, type(None)]
    [outcome] = backend.commit_all([replace(impossible, rows=[RowWrite(KEY, b"impossible", 2)])])
    assert isinstance(outcome, OverflowError)
    with closing(SqliteBackend(path, timeout=SOON)) as other_process:
        assert other_process.commit_all([Commit(TREE, record(4), rows=[RowWrite(KEY, b"theirs", 2)])]) == [None]
    assert backend.rows([KEY]) == [(b"theirs", 3)]


def test_a_query_that_was_interrupted_in_another_thread_keeps_nobody_at_what_the_store_was(
    backend: SqliteBackend, path: Path
):
    assert backend.commit_all([Commit(TREE, record(1), rows=[RowWrite(KEY, b"first", ABSENT)])]) == [None]
    backend._only_thread = None

    def interrupted_query(connection) -> None:
        cursor = connection.execute("SELECT 1 UNION ALL SELECT version FROM row")
        next(cursor)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as kept:
        backend._read(interrupted_query)
    with closing(SqliteBackend(path, timeout=SOON)) as other_process:
        assert other_process.commit_all([Commit(TREE, record(2), rows=[RowWrite(KEY, b"second", 1)])]) == [None]
    assert backend.rows([KEY]) == [(b"second", 2)]
    assert kept.value.__traceback__ is not None


# A signal may come in a callback of the garbage collector, which can only write down that it did.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_commits_that_are_interrupted_at_any_moment_are_there_or_not_and_nobody_has_to_wait(
    backend: SqliteBackend, path: Path
):
    errors = []  # whose frames refer to what was interrupted
    with Interrupts() as interrupts, closing(SqliteBackend(path, timeout=SOON)) as other_process:
        version, number = ABSENT, 1
        while interrupts.interrupted < 200:
            commit = Commit(TREE, record(number), rows=[RowWrite(KEY, b"%d" % number, version)])
            try:
                assert interrupts.during(lambda commit=commit: backend.commit_all([commit])) == [None]
                is_there = True
            except KeyboardInterrupt as error:
                errors.append(error)
                is_there = backend.records([record(number).id]) != [None]
            version, number = version + is_there, number + is_there
            told = (b"%d" % (number - 1), version) if version else None
            assert backend.rows([KEY]) == other_process.rows([KEY]) == [told]
        commit = Commit(TREE, record(number), rows=[RowWrite(KEY, b"theirs", version)])
        assert other_process.commit_all([commit]) == [None]
