"""Servers that restart, or die and are replaced, in the middle of 32 writers."""

from __future__ import annotations

import psycopg
import pytest
from campaign import SOAK, tally
from servers.postgres import Postgres
from servers.running import ServerUnavailable
from servers.valkey import Valkey, ValkeyCluster
from servers.writers import Writers, until

from holdfast import StoreError, SyncClient

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.timeout(3000 if SOAK else 900)]
RESTARTS = 30 if SOAK else 2
FAILOVERS = 20 if SOAK else 1
MOST_CONTROLS = 8


@pytest.mark.parametrize("in_threads", [False, True])
@pytest.mark.parametrize("way", ["kill -9", "stop"])
def test_a_restart_in_the_middle_of_many_writers_loses_nothing(own_server, way, in_threads):
    server, url = own_server
    if in_threads and not url.startswith("postgres"):
        pytest.skip("a thread waits for its own answers on PostgreSQL only")
    with Writers(url, in_threads=in_threads, timeout=5) as writers:
        for _ in range(RESTARTS):
            if way == "stop":
                server.server.stop(keep=True)
            else:
                server.server.kill()
            server.restart()
            writers.wait_for_more()
    assert writers.failures  # the control: the restarts were felt
    writers.check()
    shards = ", 4 shards" if "shards=4" in url else ""
    tally(
        f"{way} under 32 writers, {url.partition(':')[0]}{shards}", done=RESTARTS, acknowledged=writers.count, wrong=0
    )


def test_control_a_server_that_keeps_nothing_loses_what_it_acknowledged_and_is_found_out():
    """The same kill, on a Valkey without its file: all is lost, and the client that had saved it says so."""
    try:
        server = Valkey("--appendonly", "no")
    except ServerUnavailable as reason:
        pytest.skip(str(reason))

    def refusal(client: SyncClient) -> str:
        with pytest.raises(StoreError) as caught:
            client.save("a", session_id="s")
        return str(caught.value)

    try:
        with SyncClient.open(server.url, timeout=5) as client:
            saved = [client.save("a", session_id="s", execution_state={"n": n}) for n in range(50)]
            server.server.kill()
            server.restart()
            until(lambda: "`appendonly no`" in refusal(client), "the refusal")
        with SyncClient.open(server.url) as client:
            assert client.sessions() == []
            assert len(saved) == 50
    finally:
        server.stop()


def test_control_a_store_that_is_told_to_be_fast_loses_the_last_saves_when_its_server_is_killed():
    lost = 0
    for _ in range(RESTARTS if SOAK else MOST_CONTROLS):
        server = started()
        try:
            with Writers(f"{server.url}?durability=fast") as writers:
                writers.wait_for_more()
                server.server.kill()
                server.restart()
                writers.wait_for_more()
            assert writers.problems == []
            count = writers.lost()
        finally:
            server.stop()
        tally("control: kill -9, PostgreSQL, fast", done=1, acknowledged=writers.count, lost=count)
        lost += count
        if lost and not SOAK:
            break
    assert lost, "nothing was lost in the mode that may lose something: the other tests prove nothing"


# -- PostgreSQL: the standby takes over (R8) ---------------------------------------------------------------------------


def failover(server: Postgres, *, synchronous: bool, is_behind: bool = False) -> Writers:
    """Kills the server under its writers, promotes its standby, and lets them go on there. One that
    is behind had its own trouble a moment before."""
    standby = server.standby("standby1")
    try:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            if synchronous:
                connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'standby1'")
                connection.execute("SELECT pg_reload_conf()")
            following = f"SELECT FROM pg_stat_replication WHERE sync_state = '{'sync' if synchronous else 'async'}'"
            until(lambda: connection.execute(following).fetchall(), "the standby's following")
        with Writers(f"postgresql://postgres@127.0.0.1:{server.port},127.0.0.1:{standby.port}/postgres") as writers:
            writers.wait_for_more()
            if is_behind:
                standby.server.kill()
                writers.wait_for_more()
            server.server.kill()
            if is_behind:
                standby.restart()
            standby.promote()
            writers.wait_for_more()
            writers.wait_for_more()
        assert writers.failures
        if synchronous:
            writers.check()
        writers.lost_count = writers.lost()
        return writers
    finally:
        standby.stop()


def test_a_standby_takes_over_and_no_acknowledged_save_is_lost():
    """With synchronous replication; the DSN names both, and who may be written to is found."""
    for _ in range(FAILOVERS):
        server = started()
        try:
            writers = failover(server, synchronous=True)
        finally:
            server.stop()
        tally(
            "failovers, PostgreSQL, synchronous", done=1, acknowledged=writers.count, wrong=writers.lost_count
        )  # fmt: skip


def test_control_a_standby_that_nobody_waits_for_lacks_the_last_saves():
    """Under HOLDFAST_SOAK=1 they are counted as it comes; otherwise the standby is made to lack some."""
    lost = 0
    for _ in range(FAILOVERS):
        server = started()
        try:
            writers = failover(server, synchronous=False, is_behind=not SOAK)
        finally:
            server.stop()
        tally(
            "control: failovers, PostgreSQL, asynchronous", done=1, acknowledged=writers.count, lost=writers.lost_count
        )
        lost += writers.lost_count
    assert lost, "the standby had everything each time: the test of synchronous replication proves nothing"


def started() -> Postgres:
    try:
        return Postgres()
    except ServerUnavailable as reason:
        pytest.skip(str(reason))


def test_what_a_standby_lacks_is_not_acknowledged_by_repeating_it(postgres: Postgres):
    """The server was told not to wait any longer: the checkpoint is there, and the standby may not have it."""
    standby = postgres.standby("standby1")
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'standby1'")
        connection.execute("SELECT pg_reload_conf()")
        until(lambda: connection.execute("SELECT FROM pg_stat_replication WHERE sync_state = 'sync'").fetchall())
        with SyncClient.open(postgres.url) as client:
            client.save("a", session_id="s", execution_state={"n": 0})
            standby.stop()
            waiting = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'"

            def interrupted(**more: str) -> StoreError:
                import threading

                caught: list[StoreError] = []

                def save() -> None:
                    with pytest.raises(StoreError) as error:
                        client.save("a", session_id="s", execution_state={"n": 1}, **more)
                    caught.append(error.value)

                thread = threading.Thread(target=save)
                thread.start()
                until(lambda: connection.execute(f"SELECT {waiting}".encode()).fetchall(), "the wait for the standby")
                connection.execute(f"SELECT pg_terminate_backend(pid) {waiting}".encode())
                thread.join()
                return caught[0]

            unsure = interrupted().checkpoint_id
            assert client.restore(unsure).execution_state == {"n": 1}  # it is there
            assert interrupted(checkpoint_id=unsure).checkpoint_id == unsure  # and is still waited for
            connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
            connection.execute("SELECT pg_reload_conf()")
            assert client.save("a", session_id="s", execution_state={"n": 1}, checkpoint_id=unsure) == unsure


# -- Valkey: a replica takes over, or is missing -----------------------------------------------------------------------


def role(node: Valkey) -> str:
    said: str = node.ask("INFO", "replication")["role"]
    return said


def test_a_replica_takes_over_and_no_save_that_it_confirmed_is_lost():
    try:
        cluster = ValkeyCluster("--cluster-node-timeout", "3000")
    except ServerUnavailable as reason:
        pytest.skip(str(reason))
    try:
        with Writers(f"{cluster.url}?durability=replicated&wait_ms=500", timeout=5) as writers:
            victim, replica = next(pair for pair in cluster.pairs if pair[0].ask("DBSIZE"))
            victim.server.kill()
            until(lambda: role(replica) == "master", "the replica's taking over")
            # Who takes the place of the dead has no replica of its own: the dead comes back as one.
            victim.restart()
            until(lambda: role(victim) == "slave", "the return of the dead as a replica")
            writers.wait_for_more()
            writers.wait_for_more()
        assert role(replica) == "master"  # what is read now is what the replica had, and was told since
        assert writers.failures
        writers.check()
    finally:
        cluster.stop()


def test_a_save_that_no_replica_confirmed_is_an_error_that_says_so(valkey: Valkey):
    def replica() -> Valkey:
        started = Valkey("--replicaof", f"127.0.0.1 {valkey.port}")
        until(lambda: valkey.ask("INFO", "replication").get("slave0", {}).get("state") == "online")
        return started

    def timeline() -> list[str]:
        with SyncClient.open(valkey.url) as past:
            return [entry.checkpoint_id for entry in past.timeline(session_id="s")]

    first_replica = replica()
    with SyncClient.redis(valkey.url, durability="replicated", wait_ms=5000) as client:
        first = client.save("a", session_id="s", execution_state={"n": 0})  # the control: it is confirmed
        second = client.save("a", session_id="s", execution_state={"n": 1})
        first_replica.stop()
        with pytest.raises(StoreError, match=r"0 of 1 replicas.* outcome .*same checkpoint_id") as caught:
            client.save("a", session_id="s", execution_state={"n": 2})
        unsure = caught.value.checkpoint_id
        assert timeline() == [unsure, second, first]
        # That it is there is not enough: it is acknowledged when a replica has it.
        with pytest.raises(StoreError, match="0 of 1 replicas") as caught:
            client.save("a", session_id="s", execution_state={"n": 2}, checkpoint_id=unsure)
        assert caught.value.checkpoint_id == unsure
        second_replica = replica()
        assert client.save("a", session_id="s", execution_state={"n": 2}, checkpoint_id=unsure) == unsure
        assert timeline() == [unsure, second, first]
        second_replica.stop()
