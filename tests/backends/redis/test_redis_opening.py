"""Opening: what is refused, and in which words."""

from __future__ import annotations

import os

import pytest
import redis
from servers.running import ServerUnavailable, free_port
from servers.valkey import Valkey
from stores import python

from holdfast import Client, NewerVersionError, StoreError, SyncClient, UsageError


@pytest.mark.parametrize(
    ("url", "options", "says"),
    [
        ("redis://h", {"durability": "full"}, "'default' or 'replicated'"),
        ("redis://h", {"prefix": "a{b}"}, "prefix"),
        ("redis://h", {"prefix": ""}, "prefix"),
        ("redis://h", {"shards": 0}, "shards"),
        ("redis://h", {"max_connections": 0}, "positive"),
        ("redis://h:1,h:2", {}, "redis+cluster"),
        ("redis://h:port", {}, "not a Redis store"),
        ("redis://h?shards=many", {}, "no number"),
        ("redis://h", {"unknown": 1}, "unknown"),
    ],
)
def test_what_can_not_be_right_is_refused_at_once(url, options, says):
    with pytest.raises(UsageError, match=says.replace("+", r"\+")):
        Client.open(url, **options)


def test_no_password_is_shown():
    for url in ("redis://user:secret@h:1/0", "rediss+cluster://:secret@h:1,i:2"):
        assert "secret" not in repr(Client.open(url))
        with pytest.raises(UsageError) as caught:
            Client.open(url.replace("h:1", "h:x"))
        assert "secret" not in str(caught.value)


def test_without_the_driver_the_error_names_the_extra():
    done = python(
        """
        import sys
        sys.modules["redis"] = None
        from holdfast import Client, UsageError
        try:
            Client.open("redis://localhost")
        except UsageError as error:
            print(error)
        """
    )
    assert "pip install 'holdfast[redis]'" in done.stdout


def test_import_does_not_bring_the_driver():
    done = python("import sys, holdfast; print('redis' in sys.modules)")
    assert done.stdout.strip() == "False"


def test_a_server_that_is_not_there_is_named():
    port = free_port()
    with (
        SyncClient.open(f"redis://:secret@127.0.0.1:{port}", timeout=2) as client,
        pytest.raises(StoreError, match=f"127.0.0.1:{port}.*can't be reached") as caught,
    ):
        client.save("a")
    assert "secret" not in str(caught.value)


@pytest.mark.servers
def test_stores_of_two_prefixes_are_apart(redis_url, tmp_path):
    name = f"apart-{abs(hash(tmp_path))}"
    with SyncClient.redis(redis_url, prefix=f"{name}:a") as one, SyncClient.redis(redis_url, prefix=f"{name}") as two:
        saved = one.save("a", session_id="s")
        assert two.sessions() == []
        assert two.find(saved[-8:]) == []
        assert one.restore(saved).session_id == "s"


@pytest.mark.servers
def test_the_number_of_shards_stays(redis_url, tmp_path):
    name = f"shards-{abs(hash(tmp_path))}"
    with SyncClient.redis(redis_url, prefix=name, shards=3) as client:
        saved = client.save("a", session_id="s")
    with SyncClient.redis(redis_url, prefix=name) as client:
        assert client.restore(saved).session_id == "s"
    with SyncClient.redis(redis_url, prefix=name, shards=2) as client, pytest.raises(UsageError, match="3 shards"):
        client.restore(saved)


@pytest.mark.servers
def test_a_newer_layout_is_refused(redis_url, tmp_path):
    name = f"newer-{abs(hash(tmp_path))}"
    with redis.Redis.from_url(redis_url) as server:
        server.hset(f"{{{name}:0}}:about", mapping={"layout": 99, "shards": 1})
    with SyncClient.redis(redis_url, prefix=name) as client, pytest.raises(NewerVersionError):
        client.save("a")


@pytest.mark.servers
def test_a_server_that_drops_keys_is_refused_and_one_that_is_full_loses_nothing():
    try:
        server = Valkey("--maxmemory", "20mb", "--maxmemory-policy", "allkeys-lru")
    except ServerUnavailable as reason:
        pytest.skip(str(reason))
    try:
        with SyncClient.redis(server.url) as client:
            with pytest.raises(StoreError, match="noeviction"):
                client.save("a")
            server.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
            saved: list[str] = []
            with pytest.raises(StoreError, match="maxmemory"):
                while len(saved) < 1000:
                    saved.append(client.save("a", session_id="s", execution_state={"data": os.urandom(100_000)}))
            server.ask("CONFIG", "SET", "maxmemory", "0")
            assert [entry.checkpoint_id for entry in client.timeline(session_id="s", limit=None)][::-1] == saved
            assert client.verify().ok
            client.save("a", session_id="s", execution_state={"n": -1})
    finally:
        server.stop()
