"""Opening: the schema is made once, a newer one is left alone, and what is wrong is said at once."""

from __future__ import annotations

import asyncio
import threading
from urllib.parse import quote

import psycopg
import pytest
from open_transaction import connected, schema_of
from psycopg import sql
from stores import python

from holdfast import Client, NewerVersionError, StoreError, SyncClient, UsageError
from holdfast.backends.postgres import open_url
from holdfast.backends.postgres.schema import quote_name

pytestmark = pytest.mark.servers


def test_ten_workers_that_start_at_once_make_it_once(postgres_url):
    start = threading.Barrier(10)
    outcomes: list[object] = []

    def work(number: int) -> None:
        with SyncClient.open(postgres_url) as client:
            start.wait()
            try:
                outcomes.append(client.save("a", session_id=f"s{number}"))
            except BaseException as error:
                outcomes.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [outcome for outcome in outcomes if not isinstance(outcome, str)] == []
    with SyncClient.open(postgres_url) as client:
        assert len(client.sessions()) == 10


def test_a_newer_schema_is_refused_and_left_alone(postgres_url):
    with SyncClient.open(postgres_url) as client:
        client.save("a", session_id="s")
    schema = quote_name(schema_of(postgres_url))
    with connected(postgres_url) as connection:
        connection.execute(f"UPDATE {schema}.store SET version = 999".encode())
    with SyncClient.open(postgres_url) as client, pytest.raises(NewerVersionError, match="999"):
        client.save("a", session_id="s")
    with connected(postgres_url) as connection:
        assert connection.execute(f"SELECT version FROM {schema}.store".encode()).fetchone() == (999,)
        assert connection.execute(f"SELECT count(*) FROM {schema}.record".encode()).fetchone() == (1,)


@pytest.mark.parametrize("name", ['we"ird', "a; DROP SCHEMA public", "Größe", "x" * 63, "%s {s} $1"])
def test_any_name_is_a_schema(postgres_dsn, name):
    try:
        with SyncClient.postgres(postgres_dsn, schema=name) as client:
            saved = client.save("a", execution_state={"n": 1})
        with SyncClient.open(f"{postgres_dsn}?schema={quote(name)}") as client:
            assert client.restore(saved).execution_state == {"n": 1}
    finally:
        with psycopg.connect(postgres_dsn) as connection:
            connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(name)))


@pytest.mark.parametrize("name", ["", "x" * 64, "a\0b"])
def test_a_name_that_postgresql_would_change_is_refused(postgres_dsn, name):
    with pytest.raises(UsageError, match="schema"):
        SyncClient.postgres(postgres_dsn, schema=name)


def test_two_schemas_are_two_stores(postgres_url, postgres_dsn):
    with SyncClient.open(postgres_url) as client:
        saved = client.save("a", session_id="s")
    other = schema_of(postgres_url)[:-1] + "_"
    with SyncClient.postgres(postgres_dsn, schema=other) as client:
        assert client.sessions() == []
        assert client.find(saved) == []
    with psycopg.connect(postgres_dsn) as connection:
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(other)))


def test_a_role_without_the_right_to_make_schemas_uses_one_that_was_made_for_it(postgres_url, postgres_dsn):
    schema = schema_of(postgres_url)
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(schema)))
    as_role = postgres_dsn.replace("postgres@", f"{schema}@", 1) + f"?schema={schema}"
    try:
        with SyncClient.open(as_role) as client, pytest.raises(StoreError, match=r"docs/postgres\.md"):
            client.save("a")
        with psycopg.connect(postgres_dsn, autocommit=True) as connection:
            name = sql.Identifier(schema)
            connection.execute(sql.SQL("CREATE SCHEMA {} AUTHORIZATION {}").format(name, name))
        with SyncClient.open(as_role) as client:
            client.save("a", session_id="s")
            client.gc()
            assert client.verify().ok
    finally:
        with psycopg.connect(postgres_dsn, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(sql.Identifier(schema)))
            connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(schema)))


def test_what_can_not_be_reached_is_said_at_once_without_the_password():
    with SyncClient.postgres("postgresql://me:secret@127.0.0.1:1/nowhere") as client:
        with pytest.raises(StoreError, match=r"127\.0\.0\.1:1/nowhere") as caught:
            client.save("a")
        assert "secret" not in str(caught.value)
        assert "secret" not in repr(client)


def test_what_is_no_dsn_is_a_mistake():
    with pytest.raises(UsageError, match="DSN"):
        SyncClient.postgres("postgresql://host/db?no_such_parameter=1")
    with pytest.raises(UsageError, match="no number"):
        SyncClient.open("postgresql://host/db?max_connections=many")
    with pytest.raises(UsageError, match="durability"):
        SyncClient.postgres("postgresql://host/db", durability="quick")
    with pytest.raises(UsageError, match="options"):
        SyncClient.open("postgresql://host/db", color="red")


def test_another_isolation_level_is_refused(postgres_url):
    url = postgres_url + "&options=-c%20default_transaction_isolation%3Dserializable"
    with SyncClient.open(url) as client, pytest.raises(StoreError, match="default_transaction_isolation"):
        client.save("a")


def test_fast_does_not_wait_for_the_disk_and_full_does_what_the_server_does(postgres_url):
    async def synchronous_commit(durability: str) -> object:
        backend = open_url(postgres_url, durability=durability)
        async with backend._connection() as connection, connection.transaction():
            call = f"SELECT {quote_name(schema_of(postgres_url))}.carry_out('{{}}', '{{}}', '{{}}', '{{}}', $1)"
            await connection.execute(call.encode(), (durability == "fast",))
            found = await (await connection.execute("SHOW synchronous_commit")).fetchone()
        async with backend._connection() as connection:
            after = await (await connection.execute("SHOW synchronous_commit")).fetchone()
        await backend.close()
        return found, after

    assert asyncio.run(synchronous_commit("fast")) == (("off",), ("on",))
    assert asyncio.run(synchronous_commit("full")) == (("on",), ("on",))


def test_the_view_shows_checkpoints_to_people(postgres_url):
    with SyncClient.open(postgres_url) as client:
        saved = client.save("agënt\x00", session_id="s", step_name="plan", ttl_seconds=60)
    with connected(postgres_url) as connection:
        found = connection.execute(
            "SELECT checkpoint_id::text, session_id, agent_id, step_name, step_index, expires_at - created_at "
            f"FROM {quote_name(schema_of(postgres_url))}.checkpoint".encode()
        ).fetchone()
    assert found is not None
    assert found[:5] == (saved, "s", "agënt?", "plan", 0)
    assert found[5].total_seconds() == 60


def test_without_the_driver_the_error_names_the_extra():
    done = python(
        """
        import sys
        sys.modules["psycopg"] = None
        from holdfast import SyncClient, UsageError
        for opening in (SyncClient.postgres, SyncClient.open):
            try:
                opening("postgresql://host/db")
            except UsageError as error:
                print(error)
        """
    )
    assert done.stdout.count("pip install 'holdfast[postgres]'") == 2


def test_looking_with_the_command_line_makes_no_store(postgres_url):
    from holdfast.cli.store_location import open_or_make_store, open_store

    with open_store(postgres_url) as client, pytest.raises(StoreError, match="there is no store"):
        client.sessions()
    with connected(postgres_url) as connection:
        query = "SELECT count(*) FROM pg_namespace WHERE nspname = %s"
        assert connection.execute(query, (schema_of(postgres_url),)).fetchone() == (0,)
    with open_or_make_store(postgres_url) as client:
        client.save("a", session_id="s")
    with open_store(postgres_url) as client:
        assert [session.session_id for session in client.sessions()] == ["s"]


def test_both_clients_are_the_same_store(postgres_url, postgres_dsn):
    async def save() -> str:
        async with Client.postgres(postgres_dsn, schema=schema_of(postgres_url)) as client:
            return await client.save("a", execution_state={"n": 1}, session_id="s")

    saved = asyncio.run(save())
    with SyncClient.open(postgres_url) as client:
        assert client.restore(saved).execution_state == {"n": 1}
