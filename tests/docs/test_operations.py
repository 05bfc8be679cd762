"""docs/operations.md is true: its commands for backup and restore are run, on real servers, and
everything is there again."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from snippets import ROOT

from holdfast import SyncClient

DOCUMENT = ROOT / "docs" / "operations.md"
_TESTED = re.compile(r"^<!-- tested: (?P<name>[\w-]+) -->\n\n```bash\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL)
SCRIPTS = {found["name"]: found["code"] for found in _TESTED.finditer(DOCUMENT.read_text("utf-8"))}


def run(name: str, where: Path, **environment: str) -> str:
    """Runs the commands of the document as they stand, with these variables."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", SCRIPTS[name]],
        cwd=where,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, f"{name}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def fill(client: SyncClient) -> dict[str, object]:
    """Some sessions, with long lists and a fork; what each of them stands at."""
    for number in range(3):
        for step in range(12):
            messages = [f"{at} {'x' * 900}" for at in range(step)]
            last = client.save("a", session_id=f"s{number}", execution_state={"step": step, "messages": messages})
    client.fork(last, session_id="fork")
    return standing(client)


def standing(client: SyncClient) -> dict[str, object]:
    found = {}
    for session in client.sessions():
        latest = client.latest(session_id=session.session_id)
        assert latest is not None
        found[session.session_id] = (latest.checkpoint_id, latest.checksum, latest.execution_state)
    return found


def stands_as(url: str, before: dict[str, object]) -> None:
    """The store holds what was there, without damage, and agents go on in it."""
    with SyncClient.open(url) as client:
        assert standing(client) == before
        report = client.verify()
        assert report.problems == ()
        client.save("a", session_id="s1", execution_state={"gone": "on"})


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="the command sqlite3 is not installed")
def test_sqlite_backups_hold_everything(tmp_path):
    with SyncClient.sqlite(tmp_path / ".holdfast" / "store.db") as client:
        before = fill(client)
        run("sqlite", tmp_path)  # while it is open
    for name in ("backup.db", "smaller.db"):
        stands_as(f"sqlite:///{tmp_path / name}", before)


@pytest.mark.slow
def test_an_export_and_a_copy_hold_everything(tmp_path):
    store, new = tmp_path / "store.db", tmp_path / "new.db"
    with SyncClient.sqlite(store) as client:
        before = fill(client)
        run("export", tmp_path, STORE=str(store), NEW_STORE=str(new))
    stands_as(f"sqlite:///{new}", before)
    stands_as(f"sqlite:///{tmp_path / 'copy.db'}", before)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("flock") is None, reason="the command flock is not installed")
def test_a_copy_of_a_directory_of_files_holds_everything(tmp_path):
    with SyncClient.files(tmp_path / "store") as client:
        before = fill(client)
        run("files", tmp_path, STORE=str(tmp_path / "store"), BACKUP=str(tmp_path / "backup"))
    stands_as(f"file://{tmp_path / 'backup'}", before)


def test_the_figures_are_those_of_the_last_results():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.operations_figures", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def second_postgres() -> Iterator[str]:
    """Another server, whose transactions have lower numbers."""
    from servers.postgres import Postgres

    server = Postgres()
    yield server.dsn
    server.stop()


@pytest.mark.servers
@pytest.mark.slow
def test_a_dump_of_postgresql_holds_everything(postgres_dsn, second_postgres, tmp_path):
    import psycopg
    from servers.postgres import binaries

    if os.environ.get("HOLDFAST_TEST_POSTGRES"):
        pytest.skip("pg_dump may be older than the server that HOLDFAST_TEST_POSTGRES names")
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS holdfast CASCADE")
    with SyncClient.postgres(postgres_dsn) as client:
        before = fill(client)
        path = f"{binaries()}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        run("postgres", tmp_path, DATABASE_URL=postgres_dsn, NEW_DATABASE_URL=second_postgres, PATH=path)
    stands_as(second_postgres, before)
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute("DROP SCHEMA holdfast CASCADE")


@pytest.mark.servers
@pytest.mark.slow
def test_postgresql_goes_back_to_a_moment_by_its_archive():
    """As the document describes it: a base backup, the archive of the WAL, and a moment before the accident."""
    import psycopg
    from servers.postgres import Postgres
    from servers.running import new_directory

    archive = new_directory("archive")
    server = Postgres(
        archive_mode="on", archive_command=f"cp %p {archive}/%f", wal_level="replica", full_page_writes="on"
    )
    restored = None
    try:
        with SyncClient.postgres(server.dsn) as client:
            client.save("a", session_id="before", execution_state={"n": 1})
            directory = new_directory("restored")
            server._run("pg_basebackup", "-D", directory / "data", "-X", "none", "-c", "fast", "-d", server.dsn)
            before = fill(client)
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            moment = connection.execute("SELECT clock_timestamp()::text").fetchone()[0]
            connection.execute("DROP SCHEMA holdfast CASCADE")  # the accident
            segment = connection.execute("SELECT pg_walfile_name(pg_switch_wal())").fetchone()[0]
            deadline = time.monotonic() + 240
            while not (archive / segment).exists():
                assert time.monotonic() < deadline, server.server.log()
                time.sleep(0.05)
        (directory / "data" / "recovery.signal").touch()
        shutil.chown(directory / "data" / "recovery.signal", (directory / "data").stat().st_uid)
        restored = Postgres(
            directory,
            restore_command=f"cp {archive}/%f %p",
            recovery_target_time=moment,
            recovery_target_action="promote",
        )
        deadline = time.monotonic() + 240
        with psycopg.connect(restored.dsn, autocommit=True) as connection:
            while connection.execute("SELECT pg_is_in_recovery()").fetchone()[0]:
                assert time.monotonic() < deadline, restored.server.log()
                time.sleep(0.05)
        stands_as(restored.dsn, before)
    finally:
        server.stop()
        if restored is not None:
            restored.stop()
        shutil.rmtree(archive, ignore_errors=True)


@pytest.mark.servers
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["snapshot", "append-only file"])
def test_the_files_of_redis_hold_everything(kind):
    """As the document describes it: the files are copied while agents save, and another server starts with them."""
    from servers.running import Server, free_port, new_directory
    from servers.valkey import Valkey

    first = Valkey()
    second = None
    try:
        with SyncClient.redis(first.url) as client:
            before = fill(client)
        directory = new_directory("restored")
        if kind == "snapshot":
            first.ask("SAVE")
            shutil.copy(first.server.directory / "dump.rdb", directory)
        else:
            first.ask("CONFIG", "SET", "auto-aof-rewrite-percentage", 0)
            shutil.copytree(first.server.directory / "appendonlydir", directory / "appendonlydir")
        for path in directory.rglob("*"):
            path.chmod(0o777)
        shutil.copy(first.server.command[0], directory / "valkey-server")
        port = free_port()
        options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", "."]
        keeps = "no" if kind == "snapshot" else "yes"  # with `yes` it would not look at a snapshot
        command = [str(directory / "valkey-server"), *options, "--appendonly", keeps]
        second = Server(command, directory, port)
        stands_as(f"redis://127.0.0.1:{port}/0", before)
    finally:
        first.stop()
        if second is not None:
            second.stop()
