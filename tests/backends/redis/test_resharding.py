"""Slots move from node to node of a cluster while writers write: no script ever sees half a shard."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from campaign import SOAK, tally
from servers.running import ServerUnavailable
from servers.valkey import Valkey, ValkeyCluster
from servers.writers import Writers

from holdfast import StoreError, SyncClient
from holdfast.backends.redis import keys as layout
from holdfast.backends.redis import script_calls
from holdfast.backends.redis.msgpack import pack
from holdfast.backends.redis.script_calls import script

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.timeout(3000 if SOAK else 900)]
SHARDS = 4
MOVES = 60 if SOAK else 4


@pytest.fixture
def cluster() -> Iterator[ValkeyCluster]:
    try:
        started = ValkeyCluster()
    except ServerUnavailable as reason:
        pytest.skip(str(reason))
    yield started
    started.stop()


class Move:
    """A slot on its way from one master to another, as `redis-cli --cluster reshard` does it, step by step."""

    def __init__(self, cluster: ValkeyCluster, shard: int) -> None:
        self._masters = cluster.nodes[:3]
        self.slot: int = self._masters[0].ask("CLUSTER", "KEYSLOT", layout.base("holdfast", shard))
        self.source = next(node for node in self._masters if self._serves(node))
        self.target = self._masters[(self._masters.index(self.source) + 1) % 3]
        self.target.ask("CLUSTER", "SETSLOT", self.slot, "IMPORTING", self.source.ask("CLUSTER", "MYID"))
        self.source.ask("CLUSTER", "SETSLOT", self.slot, "MIGRATING", self.target.ask("CLUSTER", "MYID"))

    def _serves(self, node: Valkey) -> bool:
        return any(
            first <= self.slot <= last and master[1] == node.port
            for first, last, master, *_ in node.ask("CLUSTER", "SLOTS")
        )

    def some(self, count: int) -> int:
        """Moves at most so many keys; how many there were."""
        keys = self.source.ask("CLUSTER", "GETKEYSINSLOT", self.slot, count)
        if keys:
            with redis.Redis(port=self.source.port, protocol=2) as client:
                client.execute_command("MIGRATE", "127.0.0.1", self.target.port, "", 0, 10_000, "KEYS", *keys)
        return len(keys)

    def finish(self) -> None:
        while self.some(50):
            continue
        owner = self.target.ask("CLUSTER", "MYID")
        for node in (self.target, self.source, *self._masters):
            node.ask("CLUSTER", "SETSLOT", self.slot, "NODE", owner)


def test_slots_that_move_under_writers_lose_and_tear_nothing(cluster: ValkeyCluster):
    with Writers(f"{cluster.url}?shards={SHARDS}", timeout=10) as writers:
        for number in range(MOVES):
            move = Move(cluster, number % SHARDS)
            while move.some(3):  # in small steps: writers come upon it half way
                continue
            move.finish()
            writers.wait_for_more()
    writers.check()
    tally("slots moved under 32 writers", done=MOVES, acknowledged=writers.count, wrong=0)


def test_nothing_is_carried_out_on_half_a_shard(cluster: ValkeyCluster, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(script_calls, "MOVING_SECONDS", 0.2)
    url = f"{cluster.url}?shards=1"
    with SyncClient.open(url) as client:
        saved = [client.save("a", session_id="s", execution_state={"n": n}) for n in range(3)]
        move = Move(cluster, 0)
        assert move.some(3) == 3
        for call in (lambda: client.save("a", session_id="new"), lambda: client.timeline(session_id="s")):
            with pytest.raises(StoreError, match="being moved"):
                call()
        # The control: with one key the new node would carry it out, on what has arrived.
        base = layout.base("holdfast", 0)
        asked = pack([[bytes(16)]])
        with redis.Redis(port=move.target.port, protocol=2, single_connection_client=True) as there:
            there.execute_command("ASKING")
            assert there.execute_command("EVAL", script("records").source, 1, base, asked) == [None]
            there.execute_command("ASKING")
            with pytest.raises(redis.exceptions.TryAgainError):
                there.execute_command("EVAL", script("records").source, 2, base, base + b":-", asked)
        move.finish()
        saved.append(client.save("a", session_id="s", execution_state={"n": 3}))
        assert [entry.checkpoint_id for entry in client.timeline(session_id="s")][::-1] == saved
        assert client.verify().ok
