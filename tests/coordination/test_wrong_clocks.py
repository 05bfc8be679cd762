"""A process whose clock is 400 days ahead, or behind (R11).

On a server all go by the server's clock: nothing of others ends early, nothing of its own late.
Stores on this machine's disk go by its clock; what has no time to live is safe there, too.
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from servers.writers import PATIENCE
from stores import Store, messages, python_process

from holdfast import CheckpointExpiredError, CheckpointNotFoundError, LeaseHeldError, SyncClient

pytestmark = [pytest.mark.every_store, pytest.mark.slow]
HOUR = 3600

ELSEWHEN = """
import json, sys, time
url, days = sys.argv[1], float(sys.argv[2])
true = time.time_ns
time.time_ns = lambda: true() + int(days * 86400e9)
time.time = lambda: time.time_ns() / 1e9

from datetime import timedelta
from holdfast import HoldfastError, SyncClient

def tried(call):
    try:
        call()
    except HoldfastError as error:
        return type(error).__name__
    return None

client = SyncClient.open(url)
said = {}
said["restore"] = tried(lambda: client.restore(sys.argv[3]))
said["lease"] = tried(lambda: client.lease("leased", seconds=1, holder="elsewhen"))
said["save to leased"] = tried(lambda: client.save("b", session_id="leased"))
said["saved"] = client.save("b", session_id="s", execution_state={"by": "elsewhen"}, ttl_seconds=3600)
client.save("b", session_id="its own", execution_state={"text": "y" * 9000})
lease = client.lease("its own", seconds=600)
if "retain" in sys.argv:
    client.retain(keep_last=1, older_than=timedelta(days=30), dry_run=False)
client.gc()
print(json.dumps(said), flush=True)
sys.stdin.readline()
client.close()
"""


@pytest.mark.parametrize("days", [400, -400])
def test_a_process_with_a_wrong_clock_ends_nothing_of_others(shared_store: Store, days: int):
    has_its_own_clock = shared_store.kind in ("postgres", "redis")
    client = shared_store.client()
    blob = "x" * 10_000
    kept = client.save("a", session_id="s", execution_state={"messages": messages(20), "text": blob})
    timed = client.save("a", session_id="timed", execution_state={"n": 1, "text": blob}, ttl_seconds=HOUR)
    client.save("a", session_id="timed", execution_state={"n": 2, "text": blob}, ttl_seconds=HOUR)
    client.save("a", session_id="leased")
    lease = client.lease("leased", seconds=HOUR, holder="here")

    by_age = ["retain"] if has_its_own_clock else []
    process = python_process(ELSEWHEN, shared_store.url, str(days), timed, *by_age)
    try:
        heard = process.stdout.readline()
        assert heard, process.communicate()[1][-2000:]
        said = json.loads(heard)
        client.gc()

        # What has no time to live, and the order of a session, depend on no clock.
        assert client.restore(kept).execution_state == {"messages": messages(20), "text": blob}
        last = client.save("a", session_id="s", execution_state={"after": True})
        line = [entry.checkpoint_id for entry in client.timeline(session_id="s")]
        assert [id_ for id_ in line if id_ != said["saved"]] == [last, kept]
        assert client.verify().ok

        if not has_its_own_clock:
            if days > 0:  # the control: its clock is wrong, and so what it said was over is gone
                assert said["restore"] == "CheckpointExpiredError"
                with pytest.raises((CheckpointExpiredError, CheckpointNotFoundError)):
                    client.restore(timed)
            return
        assert said["restore"] is None
        assert said["lease"] == said["save to leased"] == "LeaseHeldError"
        assert client.restore(timed).execution_state == {"n": 1, "text": blob}
        assert client.save("a", session_id="leased", lease=lease)
        made = client.restore(said["saved"]).created_at
        assert abs((made - datetime.now(UTC)).total_seconds()) < PATIENCE
        with pytest.raises(LeaseHeldError) as held:
            client.lease("its own", seconds=1)
        assert abs(held.value.expires_at.timestamp() - time.time() - 600) < PATIENCE
    finally:
        process.communicate("end\n", timeout=240)


@pytest.mark.parametrize("days", [400, -400])
def test_a_wait_for_a_lease_is_as_long_as_it_should_be(shared_store: Store, days: int, monkeypatch: pytest.MonkeyPatch):
    """Until the store was asked for anything its clock is not known: no time may be counted from before that."""
    holder = shared_store.client()
    holder.save("a", session_id="s")
    with holder.lease("s", seconds=HOUR):
        true = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: true() + round(days * 86400e9))
        waiting = shared_store.client()
        if shared_store.kind in ("postgres", "redis"):
            with pytest.raises(LeaseHeldError):
                waiting.lease("s", wait=0.5)


@pytest.mark.servers
@pytest.mark.parametrize("kind", ["postgres", "redis"])
def test_the_clock_is_asked_for_again_after_a_while(kind: str, tmp_path: Path, request: pytest.FixtureRequest):
    """A clock that was set right, or a failover to a server with another one, is noticed."""
    from holdfast.backends import server_clock

    store = Store(kind, tmp_path, request.getfixturevalue("postgres_dsn" if kind == "postgres" else "redis_url"))
    backend = store._open()
    client = SyncClient(backend)
    client.save("a", session_id="s")
    backend._clock._ahead_us += 10**12  # as if the server had said so
    assert client.save("a", session_id="s")
    assert abs(backend.capabilities.now_us() - time.time_ns() // 1000) > 10**11
    backend._clock._asked_us -= server_clock.ASK_AGAIN_US + 1
    client.save("a", session_id="s")
    assert abs(backend.capabilities.now_us() - time.time_ns() // 1000) < 10**9
    store.close()
