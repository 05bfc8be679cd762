"""Missing rights, keys of another kind and lost keys: no half save, and words for what is wrong."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import redis
from click.testing import CliRunner
from servers.running import ServerUnavailable
from servers.valkey import Valkey
from servers.writers import until
from stores import messages

from holdfast import HoldfastError, StoreError, SyncClient
from holdfast.cli.main import cli

pytestmark = pytest.mark.servers
DOCS = Path(__file__).parents[3] / "docs" / "redis.md"
[LINE] = re.findall(r"^ACL SETUSER .*$", DOCS.read_text(), re.MULTILINE)
WRITES = ("hset", "zadd", "incr", "incrby", "sadd", "hdel", "zrem", "zremrangebyscore", "set", "hsetnx")
PREFIX = "team-a"


@pytest.fixture(scope="module")
def server() -> Iterator[Valkey]:
    try:
        valkey = Valkey()
    except ServerUnavailable as reason:
        pytest.skip(str(reason))
    yield valkey
    valkey.stop()


@pytest.fixture
def empty(server: Valkey) -> Valkey:
    server.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
    server.ask("CONFIG", "SET", "maxmemory", "0")
    server.ask("FLUSHALL")
    return server


def url_of(server: Valkey, shards: int = 1) -> str:
    return f"{server.url}?prefix={PREFIX}&shards={shards}"


def user(server: Valkey, *changes: str) -> str:
    """The URL of a user with the documented rights, but for these changes."""
    server.ask("ACL", "DELUSER", "agents")
    server.ask(*LINE.split())
    server.ask("ACL", "SETUSER", "agents", *changes)
    return f"redis://agents:PASSWORD@127.0.0.1:{server.port}/0?prefix={PREFIX}"


def fill(client: SyncClient) -> str:
    first = client.save("a", session_id="s", execution_state={"messages": messages(30), "text": "x" * 9000})
    client.save("a", session_id="s", append={"messages": messages(2, 30)}, ttl_seconds=3600)
    client.fork(first, "fork")
    client.tag("v1", first)
    return first


def use(client: SyncClient, first: str, *, round_: int = 0, kinds: slice = slice(None)) -> list[HoldfastError]:
    """One of each kind of commit, or of some; what they were refused with."""
    refused: list[HoldfastError] = []
    calls = [
        lambda: client.save("a", session_id="s", append={"messages": messages(3, 32)}),
        lambda: client.save("a", session_id="s", execution_state={"messages": messages(40), "t": "y" * 9000}),
        lambda: client.save("a", session_id=f"new-{round_}", execution_state={"messages": messages(40)}),
        lambda: client.save("a", session_id=f"with-ttl-{round_}", ttl_seconds=60),
        lambda: client.fork(first, f"fork-{round_}"),
        lambda: client.pin(first),
        lambda: client.unpin(first),
        lambda: client.rollback("s", to=first),
        lambda: client.expire(client.save("a", session_id="e")),
        client.gc,
    ]
    for call in calls[kinds]:
        try:
            call()
        except HoldfastError as error:
            refused.append(error)
    return refused


# -- rights ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("shards", [1, 3])
def test_a_missing_right_leaves_nothing_half_done(empty: Valkey, shards: int):
    with SyncClient.open(url_of(empty, shards)) as owner:
        first = fill(owner)
        for number, right in enumerate(WRITES):
            with SyncClient.open(user(empty, f"-{right}")) as client:
                refused = use(client, first, round_=number)
            for error in refused:
                assert "permission" in str(error)
                assert "Nothing was changed" in str(error) or "can't be read" in str(error) or shards > 1
            assert use(owner, first, round_=100 + number) == [], right
            report = owner.verify()
            assert report.ok, (right, report.problems)


@pytest.mark.parametrize("right", ["get", "hexists", "zcount", "smembers", "exists"])
def test_a_missing_right_to_read_is_not_taken_for_a_foreign_key(empty: Valkey, right: str):
    with SyncClient.open(url_of(empty)) as owner:
        fill(owner)
    with SyncClient.open(user(empty, f"-{right}")) as client, pytest.raises(StoreError) as caught:
        client.save("a", session_id="new", execution_state={"messages": messages(40)})
    assert "permission" in str(caught.value)
    assert f"+{right}" in str(caught.value)
    assert "delete" not in str(caught.value)
    assert "script:" not in str(caught.value).replace("in script:", "")  # the server's own end of the sentence


def test_the_error_names_the_right_and_the_way_to_grant_it(empty: Valkey):
    with SyncClient.open(url_of(empty)) as owner:
        fill(owner)
    with (
        SyncClient.open(user(empty, "-hset")) as client,
        pytest.raises(StoreError, match=r"`hset`.*\+hset.*Nothing was changed") as caught,
    ):
        client.save("a", session_id="s")
    assert caught.value.checkpoint_id


def test_a_user_who_may_only_read_can_look(empty: Valkey):
    with SyncClient.open(url_of(empty)) as owner:
        first = fill(owner)
    with SyncClient.open(user(empty, *(f"-{right}" for right in WRITES))) as client:
        assert client.restore(first).session_id == "s"
        assert client.verify().ok
        with pytest.raises(StoreError, match="permission"):
            client.save("a", session_id="s")


def doctor(url: str) -> dict[str, tuple[str, str, str]]:
    checks = json.loads(CliRunner().invoke(cli, ["doctor", "--store", url, "--json"]).stdout)["checks"]
    return {check["name"]: (check["status"], check["found"], check["advice"]) for check in checks}


def test_doctor_names_missing_rights_and_settings(empty: Valkey):
    with SyncClient.open(url_of(empty)) as owner:
        fill(owner)
    found = doctor(user(empty, "-hset", "-sadd", "-info"))
    assert found["rights to save"][0] == "fail"
    assert "+hset +sadd" in found["rights to save"][2]
    assert found["rights to read"][0] == "ok"
    assert found["eviction"][0] == "warn"
    assert "can't be checked" in found["eviction"][2]
    for right in WRITES:
        if right != "incr":  # which no script uses any more
            assert f"+{right}" in doctor(user(empty, f"-{right}"))["rights to save"][2].split()
    for right in ("hget", "zrangebylex", "time"):
        assert f"+{right}" in doctor(user(empty, f"-{right}"))["rights to read"][2].split()
    found = doctor(user(empty))
    assert found["rights to save"][0] == found["rights to read"][0] == found["eviction"][0] == "ok"
    empty.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lfu")
    empty.ask("CONFIG", "SET", "appendonly", "no")
    try:
        found = doctor(url_of(empty))
    finally:
        empty.ask("CONFIG", "SET", "appendonly", "yes")
        # As long as it writes a new file, it refuses to be stopped.
        until(lambda: empty.ask("INFO", "persistence")["aof_rewrite_in_progress"] == 0, "the new file")
        until(lambda: empty.ask("INFO", "persistence")["aof_rewrite_scheduled"] == 0, "the new file")
    assert found["eviction"][:2] == ("fail", "allkeys-lfu")
    assert found["appendonly"][0] == "warn"


# -- keys of another kind
# ------------------------------------------------------------------------------------------------


def keys_of(server: redis.Redis) -> list[bytes]:
    return sorted(server.keys(f"{{{PREFIX}:*"))


@pytest.mark.slow
def test_a_key_of_another_kind_leaves_nothing_half_done_and_is_found(empty: Valkey):
    with redis.Redis(port=empty.port) as server, SyncClient.open(url_of(empty)) as client:
        first = fill(client)
        use(client, first, round_=99)
        assert client.verify().ok
        for number, key in enumerate(keys_of(server)):
            if key.endswith((b":held", b":confirmed", b":collecting")):
                continue
            server.rename(key, b"aside")
            server.rpush(key, "another program's")
            refused = use(client, first, round_=number, kinds=slice(number % 2, None, 2))
            assert all(isinstance(error, HoldfastError) for error in refused)
            report = client.verify()
            server.rename(b"aside", key)
            assert not report.ok, key
            client.save("a", session_id="s")
            report = client.verify()
            assert report.ok, (key, report, [str(error) for error in refused])


def test_a_key_in_the_way_of_a_new_session_is_named(empty: Valkey):
    with redis.Redis(port=empty.port) as server, SyncClient.open(url_of(empty)) as client:
        fill(client)
        before = server.dbsize()
        counted = int(server.get(f"{{{PREFIX}:0}}:counted") or 0)
        for number in range(counted + 1, counted + 4):
            server.set(f"{{{PREFIX}:0}}:session:{number}", "another program's")
        with pytest.raises(StoreError, match=r"session:\d+ is no zset.*prefix.*Nothing was changed"):
            client.save("a", session_id="new")
        assert server.dbsize() == before + 3
        with pytest.raises(StoreError, match="session:"):
            client.handoff(client.latest(session_id="s").checkpoint_id, target_agent_id="b", new_id=None)
            client.fork(client.latest(session_id="s").checkpoint_id, "other")
        for number in range(counted + 1, counted + 4):
            server.delete(f"{{{PREFIX}:0}}:session:{number}")
        client.save("a", session_id="new")
        assert client.verify().ok


# -- keys that are gone
# --------------------------------------------------------------------------------------------------


def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    with suppress(ImportError):
        monkeypatch.setattr("holdfast.backends.redis.server_state.CHECK_SECONDS", 0.05)


def test_eviction_under_an_open_client_is_noticed(empty: Valkey, monkeypatch):
    look_often(monkeypatch)
    with SyncClient.open(url_of(empty)) as client:
        saved = [client.save("a", session_id="s", execution_state={"n": n}) for n in range(20)]
        empty.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        with pytest.raises(StoreError, match=r"maxmemory-policy allkeys-lru.*Nothing was changed"):
            while len(saved) < 2000:
                saved.append(client.save("a", session_id="s", execution_state={"n": -1}))
        empty.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
        saved.append(client.save("a", session_id="s"))
        assert len(client.timeline(session_id="s", limit=None)) == len(saved)
        assert client.verify().ok


@pytest.mark.parametrize("shards", [1, 3])
def test_an_emptied_store_is_not_written_to(empty: Valkey, shards: int):
    with SyncClient.open(url_of(empty, shards)) as client:
        for n in range(6):
            client.save("a", session_id=f"s{n}", execution_state={"n": n})
        empty.ask("FLUSHDB")
        for n in range(7):
            with pytest.raises(StoreError, match="FLUSHDB"):
                client.save("a", session_id=f"s{n}", execution_state={"n": -1})
        report = client.verify()
        assert not report.ok
        assert "emptied" in report.problems[0].message
    with SyncClient.open(url_of(empty, shards)) as client:
        client.save("a", session_id="s0")
        assert client.verify().ok


def test_every_key_that_is_evicted_is_missed(empty: Valkey):
    """A server that drops keys drops whole ones: `verify` says so whichever it is, and no save makes it worse."""
    with redis.Redis(port=empty.port) as server, SyncClient.open(url_of(empty)) as client:
        first = fill(client)
        for key in keys_of(server):
            if key.endswith((b":due", b":held", b":confirmed", b":collecting")):  # nothing is lost with these
                continue
            server.rename(key, b"aside")
            report = client.verify()
            assert not report.ok, key
            server.rename(b"aside", key)
            assert client.verify().ok, key
        for name in ("record", "order", "ids", "numbers", "names", "counted", "last", "about"):
            key = f"{{{PREFIX}:0}}:{name}"
            server.rename(key, "aside")
            with pytest.raises(HoldfastError, match=r"missing|not there"):
                client.save("a", session_id="other")
            server.rename("aside", key)
        server.delete(f"{{{PREFIX}:0}}:record")
        said = " ".join(problem.message for problem in client.verify().problems)
        assert "3 of 3 records" in said
        assert first


def test_who_may_not_ask_is_told_that_eviction_is_not_checked(empty: Valkey, caplog):
    with SyncClient.open(url_of(empty)) as owner:
        fill(owner)
    with caplog.at_level(logging.WARNING, "holdfast"), SyncClient.open(user(empty, "-info")) as client:
        client.save("a", session_id="s")
        client.save("a", session_id="s")
    assert [record for record in caplog.messages if "can't be checked" in record and "+info" in record]
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("shards", [1, 3])
def test_a_store_of_an_earlier_version_gets_its_mark(empty: Valkey, shards: int):
    with SyncClient.open(url_of(empty, shards)) as client:
        first = fill(client)
    with redis.Redis(port=empty.port) as server:
        for shard in range(shards):
            server.hdel(f"{{{PREFIX}:{shard}}}:about", "store", "marked", "drawn")
    with SyncClient.open(url_of(empty, shards)) as client, SyncClient.open(url_of(empty, shards)) as other:
        assert use(client, first) == []
        other.save("a", session_id="s")
        assert client.verify().ok


# -- words
# ---------------------------------------------------------------------------------------------------------------


def refusal(url: str) -> str:
    with SyncClient.open(url, timeout=5) as client, pytest.raises(StoreError) as caught:
        client.save("a")
    assert "PASSWORD" not in str(caught.value)
    return str(caught.value)


def test_each_refusal_has_its_own_sentence(empty: Valkey):
    url = user(empty)
    assert "the user name or the password is wrong" in refusal(url.replace("PASSWORD", "wrong"))
    assert "no database of that number" in refusal(f"redis://127.0.0.1:{empty.port}/99")
    empty.ask("REPLICAOF", "127.0.0.1", "1")
    try:
        assert "a replica, which only reads" in refusal(url_of(empty))
        assert doctor(url_of(empty))["open"][0] == "fail"
    finally:
        empty.ask("REPLICAOF", "NO", "ONE")
    with SyncClient.open(url_of(empty)) as client:
        client.save("a")
    empty.ask("REPLICAOF", "127.0.0.1", "1")
    try:
        assert "a replica, which only reads" in refusal(url_of(empty))
        assert doctor(url_of(empty))["role"][:2] == ("fail", "replica")
    finally:
        empty.ask("REPLICAOF", "NO", "ONE")
    limit = empty.ask("CONFIG", "GET", "maxclients")[1]
    with redis.Redis(port=empty.port) as server:
        server.config_set("maxclients", 1)
        try:
            # Its answer may be lost with the connection, which it closes at once.
            assert re.search("has no connection left|has it connections left", refusal(url_of(empty)))
        finally:
            server.config_set("maxclients", limit)
    empty.ask("CONFIG", "SET", "min-replicas-to-write", "3")
    try:
        assert "too few replicas follow the server" in refusal(url_of(empty))
    finally:
        empty.ask("CONFIG", "SET", "min-replicas-to-write", "0")
