"""What the documentation of LangGraph's own savers shows, with nothing but the import and the class's name changed."""

from __future__ import annotations

import asyncio
import sqlite3
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
import redis.asyncio
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph_savers import chat_graph, put, values_of
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from holdfast import SyncClient, UsageError
from holdfast.langgraph import HoldfastSaver

SERVER = (pytest.mark.servers, pytest.mark.slow)
SETTINGS = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}


@pytest.fixture
def thread() -> Any:
    """Tests of one server share a store here: each has a thread of its own."""
    return {"configurable": {"thread_id": str(uuid.uuid4())}}


@pytest.fixture(
    params=["file", ":memory:", pytest.param("postgres", marks=SERVER), pytest.param("redis", marks=SERVER)]
)
def conn_string(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return str(tmp_path / "checkpoints.sqlite")
    fixtures = {"postgres": "postgres_dsn", "redis": "redis_url"}
    return request.getfixturevalue(fixtures[request.param]) if request.param in fixtures else request.param


def talk(saver: HoldfastSaver, thread: Any) -> list[str]:
    said = chat_graph(saver).invoke({"messages": [HumanMessage("hi! I'm bob")]}, thread)
    return [message.content for message in said["messages"]]


async def atalk(saver: HoldfastSaver, thread: Any) -> list[str]:
    said = await chat_graph(saver).ainvoke({"messages": [HumanMessage("hi! I'm bob")]}, thread)
    return [message.content for message in said["messages"]]


def test_from_conn_string_with_setup(conn_string: str, thread: Any) -> None:
    with HoldfastSaver.from_conn_string(conn_string) as checkpointer:
        checkpointer.setup()
        assert talk(checkpointer, thread) == ["hi! I'm bob", "reply 1"]
    with HoldfastSaver.from_conn_string(conn_string, pipeline=True) as checkpointer:
        remembered = [] if conn_string == ":memory:" else ["hi! I'm bob", "reply 1"]
        assert talk(checkpointer, thread)[:-2] == remembered


def test_from_conn_string_with_await(conn_string: str, thread: Any) -> None:
    async def scenario() -> None:
        async with HoldfastSaver.from_conn_string(conn_string) as checkpointer:
            await checkpointer.setup()
            await checkpointer.asetup()
            assert await atalk(checkpointer, thread) == ["hi! I'm bob", "reply 1"]

    asyncio.run(scenario())


def test_a_list_of_parameters_is_postgresql_and_a_file_may_be_called_anything(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("state=1.db", "a b.db", "redis.db"):
        with HoldfastSaver.from_conn_string(name) as saver:
            put(saver, {"configurable": {"thread_id": "t"}}, x=1)
        assert (tmp_path / name).exists()
    with HoldfastSaver.from_conn_string("host=127.0.0.1 port=1 dbname=nowhere") as saver:
        assert saver._blocking_services.backend.capabilities.name == "postgres"
    with pytest.raises(UsageError, match="text"):
        HoldfastSaver.from_conn_string(7)


def test_a_file_of_langgraphs_own_saver_names_the_import(tmp_path: Path, thread: Any) -> None:
    path = str(tmp_path / "checkpoints.sqlite")
    with SqliteSaver.from_conn_string(path) as official:
        talk(official, thread)  # type: ignore[arg-type]  # graphs take either
    before = Path(path).read_bytes()
    with pytest.raises(UsageError, match=r"another program.*holdfast import langgraph-sqlite"):
        HoldfastSaver.from_conn_string(path)
    assert Path(path).read_bytes() == before


def test_a_connection_of_sqlite3(tmp_path: Path, thread: Any) -> None:
    path = tmp_path / "checkpoint.db"
    saver = HoldfastSaver(sqlite3.connect(path, check_same_thread=False))
    assert talk(saver, thread) == ["hi! I'm bob", "reply 1"]
    saver.close()
    with SyncClient.sqlite(path) as client:
        assert len(client.sessions()) == 1
    with HoldfastSaver(conn=sqlite3.connect(":memory:")) as saver:
        assert talk(saver, thread) == ["hi! I'm bob", "reply 1"]


@pytest.fixture
def connections(postgres_dsn: str) -> Iterator[dict[str, Any]]:
    with (
        ConnectionPool(postgres_dsn, max_size=3, min_size=1, kwargs=SETTINGS) as pool,
        psycopg.Connection.connect(postgres_dsn, **SETTINGS) as connection,
    ):
        yield {"pool": pool, "connection": connection}


@pytest.mark.servers
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pool", "connection"])
def test_a_pool_or_a_connection_of_psycopg(connections: dict[str, Any], kind: str, thread: Any) -> None:
    with HoldfastSaver(connections[kind]) as checkpointer:
        checkpointer.setup()
        assert talk(checkpointer, thread) == ["hi! I'm bob", "reply 1"]
        assert asyncio.run(atalk(checkpointer, thread))[2:] == ["hi! I'm bob", "reply 3"]
    # What was given is the caller's: it is neither used up nor closed.
    with connections["pool"].connection() as connection:
        assert connection.execute("SELECT 1 AS one").fetchone() == {"one": 1}
    assert connections["connection"].execute("SELECT 1 AS one").fetchone() == {"one": 1}


@pytest.mark.servers
@pytest.mark.slow
def test_a_pool_or_a_connection_that_is_awaited(postgres_dsn: str, thread: Any) -> None:
    async def scenario() -> None:
        async with (
            AsyncConnectionPool(postgres_dsn, max_size=2, min_size=1, kwargs=SETTINGS, open=False) as pool,
            HoldfastSaver(conn=pool) as checkpointer,
        ):
            await checkpointer.setup()
            assert await atalk(checkpointer, thread) == ["hi! I'm bob", "reply 1"]
        async with (
            await psycopg.AsyncConnection.connect(postgres_dsn, **SETTINGS) as connection,
            HoldfastSaver(connection) as checkpointer,
        ):
            assert len(await atalk(checkpointer, thread)) == 4

    asyncio.run(scenario())


@pytest.mark.servers
@pytest.mark.slow
def test_parameters_of_a_pool_that_are_not_in_its_address(postgres_dsn: str, thread: Any) -> None:
    parameters = psycopg.conninfo.conninfo_to_dict(postgres_dsn)
    given = {**parameters, **SETTINGS}
    with HoldfastSaver.from_conn_string(postgres_dsn, pool_config={"min_size": 1, "max_size": 2}) as checkpointer:
        assert checkpointer.get_tuple(thread) is None
    with ConnectionPool(kwargs=given, min_size=0, max_size=2) as pool, HoldfastSaver(pool) as checkpointer:
        assert talk(checkpointer, thread) == ["hi! I'm bob", "reply 1"]
    asked = ConnectionPool(lambda: postgres_dsn, min_size=0, max_size=2, open=False)
    with pytest.raises(UsageError, match="from_postgres"):
        HoldfastSaver(asked)


@pytest.mark.servers
@pytest.mark.slow
def test_a_redis_client_or_its_url(redis_url: str, thread: Any) -> None:
    from holdfast.langgraph import HoldfastStore

    with redis.Redis.from_url(redis_url) as client, HoldfastSaver(redis_client=client) as checkpointer:
        checkpointer.setup()
        assert talk(checkpointer, thread) == ["hi! I'm bob", "reply 1"]
        assert client.ping()

    async def scenario() -> None:
        async with redis.asyncio.Redis.from_url(redis_url) as client, HoldfastSaver(client) as checkpointer:
            await checkpointer.asetup()
            assert len(await atalk(checkpointer, thread)) == 4
        async with HoldfastSaver(redis_url=redis_url) as checkpointer:
            assert len(await atalk(checkpointer, thread)) == 6
        async with HoldfastSaver(redis_url) as checkpointer:
            assert len(await atalk(checkpointer, thread)) == 8
        async with redis.asyncio.Redis.from_url(redis_url) as client, HoldfastStore(client) as store:
            await store.aput(("of", thread["configurable"]["thread_id"]), "k", {"v": 1})

    asyncio.run(scenario())


@pytest.mark.servers
@pytest.mark.slow
def test_a_client_of_a_redis_cluster(redis_cluster: Any, thread: Any) -> None:
    address = redis_cluster.url.replace("redis+cluster://", "redis://").partition(",")[0]
    with redis.RedisCluster.from_url(address) as client, HoldfastSaver(redis_client=client) as checkpointer:
        assert talk(checkpointer, thread) == ["hi! I'm bob", "reply 1"]

    async def scenario() -> None:
        async with redis.asyncio.RedisCluster.from_url(address) as client, HoldfastSaver(client) as checkpointer:
            assert len(await atalk(checkpointer, thread)) == 4

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("client", "url"),
    [
        (redis.Redis(), "redis://localhost:6379/0"),
        (redis.Redis(host="h", port=7, db=2, password="p@ss/w:rd"), "redis://:p%40ss%2Fw%3Ard@h:7/2"),
        (redis.Redis(host="h", username="u", password="p"), "redis://u:p@h:6379/0"),
        (
            redis.Redis.from_url("rediss://u:p@h:7/1?ssl_ca_certs=/ca.pem"),
            "rediss://u:p@h:7/1?ssl_ca_certs=%2Fca.pem",
        ),
    ],
)
def test_the_address_of_a_redis_client(client: Any, url: str) -> None:
    from holdfast.adapters.langgraph.connection_info import _redis_url

    assert _redis_url(client) == url


def test_clients_without_an_address_are_refused_in_words(tmp_path: Path) -> None:
    import aiosqlite

    with pytest.raises(UsageError, match="Unix socket"):
        HoldfastSaver(redis.Redis(unix_socket_path="/tmp/redis"))
    with pytest.raises(UsageError, match="from_conn_string"):
        HoldfastSaver(aiosqlite.connect(tmp_path / "x.db"))
    for wrong in (object(), 7, "state.db"):
        with pytest.raises(UsageError, match="take a Client"):
            HoldfastSaver(wrong)
    with SyncClient.memory() as client, pytest.raises(UsageError, match="given 2"):
        HoldfastSaver(client, redis_url="redis://h")


def test_the_ttl_of_langgraphs_redis_saver(tmp_path: Path, thread: Any) -> None:
    path = str(tmp_path / "x.db")
    with HoldfastSaver.from_conn_string(path, ttl={"default_ttl": 60, "refresh_on_read": False}) as saver:
        talk(saver, thread)
    with SyncClient.sqlite(path) as client:
        assert client.sessions()[0].head.ttl_seconds == 3600
    with pytest.raises(UsageError, match="one of them"):
        HoldfastSaver.memory(ttl={"default_ttl": 60}, ttl_seconds=60)
    with pytest.raises(UsageError, match="refresh_on_read"):
        HoldfastSaver.from_conn_string(":memory:", ttl={"default_ttl": 60, "refresh_on_read": True})


def test_without_arguments_as_langgraphs_in_memory_classes_it_is_on_the_default_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thread: Any
) -> None:
    from holdfast.langgraph import HoldfastStore

    monkeypatch.chdir(tmp_path)
    checkpointer = HoldfastSaver()
    assert talk(checkpointer, thread) == ["hi! I'm bob", "reply 1"]
    store = HoldfastStore()
    store.put(("a",), "k", {"n": 1})
    checkpointer.close()
    store.close()
    with SyncClient.sqlite() as client:
        assert len(client.sessions()) == 1
        assert HoldfastStore(client).get(("a",), "k").value == {"n": 1}


def test_a_client_that_was_given_stays_open(tmp_path: Path) -> None:
    with SyncClient.sqlite(tmp_path / "x.db") as client:
        with HoldfastSaver(client) as saver:
            put(saver, {"configurable": {"thread_id": "t"}}, x=1)
        assert values_of(HoldfastSaver(client), {"configurable": {"thread_id": "t"}}) == {"x": 1}


def test_messages_with_text_survive(tmp_path: Path, thread: Any) -> None:
    """The state's messages have the classes that they had."""
    with HoldfastSaver.from_conn_string(str(tmp_path / "x.db")) as saver:
        talk(saver, thread)
        assert [*map(type, chat_graph(saver).get_state(thread).values["messages"])] == [HumanMessage, AIMessage]
