"""Error messages: each refusal has its own, in errors and in `doctor`; events say why they wait."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from click.testing import CliRunner
from open_transaction import schema_of
from servers.postgres import Postgres
from servers.running import ServerUnavailable
from servers.writers import until

from holdfast import StoreError, SyncClient
from holdfast.cli.main import cli

pytestmark = pytest.mark.servers
ROLES = """
    CREATE ROLE reader LOGIN; ALTER ROLE reader SET default_transaction_read_only = on;
    GRANT CREATE ON DATABASE postgres TO reader;
    CREATE ROLE hasty LOGIN SUPERUSER; ALTER ROLE hasty SET synchronous_commit = off;
    CREATE ROLE guest LOGIN; CREATE ROLE locked LOGIN PASSWORD 'secret';
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    try:
        postgres = Postgres(max_connections="12", superuser_reserved_connections="3")
    except ServerUnavailable as reason:
        pytest.skip(str(reason))
    rules = postgres.data / "pg_hba.conf"
    rules.write_text("host all locked 127.0.0.1/32 scram-sha-256\n" + rules.read_text())
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute(ROLES.encode())
        connection.execute("SELECT pg_reload_conf()")
    until(lambda: "password" in refusal(of_role(postgres, "locked:wrong")), "the rules")
    with SyncClient.open(postgres.dsn) as client:
        client.save("a", session_id="s")
    yield postgres
    postgres.stop()


def of_role(server: Postgres, role: str, database: str = "postgres") -> str:
    return f"postgresql://{role}@127.0.0.1:{server.port}/{database}"


def refusal(url: str) -> str:
    with SyncClient.open(url, timeout=5) as client:
        try:
            client.save("a", session_id="s")
        except StoreError as error:
            return str(error)
    return ""


def doctor(url: str) -> dict[str, tuple[str, str, str]]:
    checks = json.loads(CliRunner().invoke(cli, ["doctor", "--store", url, "--json"]).stdout)["checks"]
    return {check["name"]: (check["status"], check["found"], check["advice"]) for check in checks}


def test_each_refusal_has_its_own_sentence(server: Postgres):
    wrong = refusal(of_role(server, "locked:wrong"))
    assert "The password is wrong" in wrong
    assert "wrong@" not in wrong
    assert "The server wants a password" in refusal(of_role(server, "locked"))
    assert "Create the database first" in refusal(of_role(server, "postgres", "nowhere"))
    assert "Create the role first" in refusal(of_role(server, "stranger"))
    assert "The role lacks a right" in refusal(of_role(server, "guest"))
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute(
            "GRANT USAGE ON SCHEMA holdfast TO reader; GRANT ALL ON ALL TABLES IN SCHEMA holdfast TO reader"
        )
    read_only = refusal(of_role(server, "reader"))
    assert "default_transaction_read_only = off" in read_only
    assert "follows another" not in read_only
    held = []
    try:
        with pytest.raises(psycopg.OperationalError):
            while True:
                held.append(psycopg.connect(of_role(server, "guest")))
        assert "The server has no connection left" in refusal(of_role(server, "guest"))
    finally:
        for connection in held:
            connection.close()


def test_doctor_names_settings_and_rights(server: Postgres):
    found = doctor(of_role(server, "hasty"))
    assert found["synchronous_commit"][:2] == ("warn", "off")
    assert found["rights"][0] == "ok"
    assert found["fsync"][0] == "warn"  # of the test server, indeed
    assert doctor(of_role(server, "reader"))["transactions"][:2] == ("fail", "read-only")
    rights = doctor(of_role(server, "guest"))["rights"]
    assert rights[0] == "fail"
    assert "USAGE on the schema" in rights[1]
    assert "The password is wrong" in doctor(of_role(server, "locked:wrong"))["open"][1]
    printed = CliRunner().invoke(cli, ["doctor", "--store", of_role(server, "locked:wrong")]).stdout
    assert "The password is wrong: give it in the DSN, by PGPASSWORD or by a password file" in printed


@pytest.mark.slow
def test_a_standby_says_that_it_only_reads(server: Postgres):
    standby = server.standby("follower")
    try:
        until(lambda: "follows another" in refusal(standby.dsn), "the store on the standby")
        assert "default_transaction_read_only" not in refusal(standby.dsn)
        assert doctor(standby.dsn)["role of the server"][:2] == ("fail", "standby")
    finally:
        standby.stop()
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            until(lambda: not connection.execute("SELECT FROM pg_replication_slots WHERE active").fetchall())
            connection.execute("SELECT pg_drop_replication_slot('follower')")


# -- events beside an open transaction
# -------------------------------------------------------------------------------------


def test_events_say_why_they_wait(postgres_url: str, caplog: pytest.LogCaptureFixture):
    with SyncClient.open(postgres_url) as client:
        first = client.save("a", session_id="s")
        with psycopg.connect(f"{postgres_url.partition('?')[0]}?application_name=nightly-report") as other:
            other.execute(f"CREATE TABLE {schema_of(postgres_url)}.report ()".encode())
            second = client.save("a", session_id="s")
            with caplog.at_level(logging.WARNING, "holdfast"):
                stream = client.events(after="start", follow=False)
                assert [event.checkpoint.checkpoint_id for event in stream] == [first]
            assert stream.waits_for is not None
            assert "1 checkpoint is saved and not shown yet" in stream.waits_for
            assert "'nightly-report'" in stream.waits_for
            assert str(other.info.backend_pid) in stream.waits_for
            assert len([said for said in caplog.messages if "not shown yet" in said]) == 1
            asked = [
                sys.executable,
                "-m",
                "holdfast",
                "events",
                "--store",
                postgres_url,
                "--after",
                "start",
                "--no-follow",
            ]
            done = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=240)
            assert len(done.stdout.splitlines()) == 1
            assert "nightly-report" in done.stderr
        stream = client.events(after="start", follow=False)
        assert [event.checkpoint.checkpoint_id for event in stream] == [first, second]
        assert stream.waits_for is None


@pytest.mark.slow
def test_who_follows_is_told_while_it_waits(postgres_url: str, caplog: pytest.LogCaptureFixture):
    with SyncClient.open(postgres_url) as client, caplog.at_level(logging.WARNING, "holdfast"):
        client.save("a", session_id="s")
        stream = iter(client.events(after="start"))
        next(stream)
        with psycopg.connect(postgres_url.partition("?")[0]) as other:
            other.execute(f"CREATE TABLE {schema_of(postgres_url)}.report ()".encode())
            client.save("a", session_id="s")
            with ThreadPoolExecutor(1) as threads:
                coming = threads.submit(next, stream)
                until(lambda: any("not shown yet" in said for said in caplog.messages), "the reason")
                other.rollback()
                assert coming.result(240).checkpoint.sequence == 2
