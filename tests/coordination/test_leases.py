"""Leases: one writer at a time, and whoever lost it can't write, however late it comes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from lease_renewal import in_time
from stores import Clock, Store, messages, python_process

from holdfast import (
    CheckpointExpiredError,
    CheckpointNotFoundError,
    Client,
    LeaseHeldError,
    LeaseLostError,
    SyncClient,
    UsageError,
)
from holdfast.coordination.process import has_ended, this_process
from holdfast.model.lease import LeaseTerms, Process

pytestmark = pytest.mark.every_store


class TestWhileALeaseLives:
    def test_its_holder_saves_and_nobody_else_does(self, one: SyncClient, other: SyncClient):
        lease = one.lease("s", holder="worker 1")
        first = one.save("a", execution_state={"n": 1}, lease=lease)
        for stranger in (one, other):
            with pytest.raises(LeaseHeldError, match=r"'s' is leased to 'worker 1' until .* UTC: only its holder"):
                stranger.save("b", execution_state={"n": 2}, session_id="s")
        second = one.save("a", execution_state={"n": 3}, lease=lease, session_id="s")
        assert [entry.checkpoint_id for entry in other.timeline(session_id="s")] == [second, first]

    def test_a_client_that_remembers_the_session_from_before_is_refused_too(self, one: SyncClient, other: SyncClient):
        other.save("b", execution_state={"n": 0}, session_id="s")
        lease = one.lease("s")
        with pytest.raises(LeaseHeldError):
            other.save("b", execution_state={"n": 1}, session_id="s")
        one.save("a", execution_state={"n": 1}, lease=lease)

    def test_a_second_lease_is_refused_with_who_and_until_when(self, one: SyncClient, other: SyncClient, clock: Clock):
        one.lease("s", holder="worker 1", seconds=15)
        with pytest.raises(LeaseHeldError) as caught:
            other.lease("s")
        assert caught.value.holder == "worker 1"
        assert caught.value.expires_at == datetime.fromtimestamp(clock.us / 1e6 + 15, UTC)
        assert caught.value.exit_code == 4

    def test_neither_rollback_nor_handoff_moves_the_session_of_another(self, one: SyncClient, other: SyncClient):
        first = one.save("a", execution_state={"n": 1}, session_id="s")
        second = one.save("a", execution_state={"n": 2}, session_id="s")
        lease = one.lease("s")
        for attempt in (lambda: other.rollback("s", first), lambda: other.handoff(second, "b")):
            with pytest.raises(LeaseHeldError):
                attempt()
        one.rollback("s", first, lease=lease)
        assert one.latest(session_id="s").checkpoint_id == first
        one.save("a", execution_state={"n": 3}, lease=lease)

    def test_other_sessions_and_forks_are_free(self, one: SyncClient, other: SyncClient):
        first = one.save("a", execution_state={"n": 1}, session_id="s")
        one.lease("s")
        other.save("a", execution_state={}, session_id="t")
        fork = other.fork(first, "s2")
        other.save("a", execution_state={"n": 9}, session_id=fork.session_id)

    def test_expiring_the_head_leaves_it_in_force(self, one: SyncClient, other: SyncClient):
        lease = one.lease("s")
        first = one.save("a", execution_state={"n": 1}, lease=lease)
        second = one.save("a", execution_state={"n": 2}, lease=lease)
        assert other.expire(second)
        with pytest.raises(LeaseHeldError):
            other.save("b", session_id="s")
        third = one.save("a", execution_state={"n": 3}, lease=lease)
        assert one.get(third).parent_id == first

    def test_a_session_without_a_checkpoint_can_be_leased_and_is_not_listed(self, one: SyncClient, other: SyncClient):
        lease = one.lease("new")
        assert one.sessions() == []
        assert other.session("new") is None
        assert list(other.timeline(session_id="new")) == []
        assert other.latest(session_id="new") is None
        assert other.verify().ok
        with pytest.raises(LeaseHeldError):
            other.save("b", session_id="new")
        saved = one.save("a", execution_state={"n": 1}, lease=lease)
        assert other.latest(session_id="new").checkpoint_id == saved
        assert len(other.tree("new")) == 1
        assert other.verify().ok


class TestALeaseThatIsOver:
    def test_by_time_refuses_its_holder_though_nobody_took_it(self, one: SyncClient, clock: Clock):
        lease = one.lease("s", seconds=15)
        one.save("a", execution_state={"n": 1}, lease=lease)
        clock.forward(15)
        with pytest.raises(LeaseLostError, match=r"ran out at .* without having been renewed"):
            one.save("a", execution_state={"n": 2}, lease=lease)
        with pytest.raises(LeaseLostError):
            lease.renew()
        assert lease.release() is False

    def test_lets_anybody_save_again(self, one: SyncClient, other: SyncClient, clock: Clock):
        one.lease("s", seconds=15)
        clock.forward(15)
        saved = other.save("b", execution_state={"n": 1}, session_id="s")
        assert one.latest(session_id="s").checkpoint_id == saved

    def test_by_takeover_refuses_the_paused_holder(self, one: SyncClient, other: SyncClient, clock: Clock):
        old = one.lease("s", seconds=15, holder="old")
        one.save("a", execution_state={"n": 1}, lease=old)
        clock.forward(15)
        new = other.lease("s", seconds=15, holder="new")
        assert new.token > old.token
        with pytest.raises(
            LeaseLostError, match=r"that 'old' had is over: it is held by 'new' now. Nothing was written"
        ):
            one.save("a", execution_state={"n": 2}, lease=old)
        other.save("b", execution_state={"n": 3}, lease=new)
        assert old.release() is False  # and the new one's goes on
        other.save("b", execution_state={"n": 4}, lease=new)

    def test_the_commit_itself_is_refused_when_it_changed_hands_in_between(self, store: Store, clock: Clock):
        """The clock and the row said yes; then the process was paused, until another held the lease."""
        client, recorder = store.recorded()
        other = store.client()
        clock.rules(client)
        clock.rules(other)
        old = client.lease("s", seconds=15)
        client.save("a", execution_state={"n": 1}, lease=old)

        def pause(_: object) -> None:
            recorder.before_commit = None
            clock.forward(16)
            new = other.lease("s")
            other.save("b", execution_state={"n": 2}, lease=new)

        recorder.before_commit = pause
        with pytest.raises(LeaseLostError):
            client.save("a", execution_state={"n": 3}, lease=old)
        assert [entry.agent_id for entry in other.timeline(session_id="s")] == ["b", "a"]

    def test_by_release(self, one: SyncClient, other: SyncClient):
        lease = one.lease("s")
        assert lease.release() is True
        assert lease.release() is False
        with pytest.raises(LeaseLostError, match="it was released or taken over"):
            one.save("a", lease=lease)
        other.save("b", session_id="s")

    def test_by_handoff(self, one: SyncClient, other: SyncClient):
        lease = one.lease("s")
        saved = one.save("a", execution_state={"n": 1}, lease=lease)
        one.handoff(saved, "b", lease=lease)
        with pytest.raises(LeaseLostError):
            one.save("a", lease=lease)
        other.save("b", execution_state={"n": 2}, session_id="s", lease=other.lease("s"))

    def test_of_a_collected_session_is_not_that_of_a_new_one_by_its_name(
        self, one: SyncClient, other: SyncClient, clock: Clock
    ):
        old = one.lease("s", seconds=15)
        first = one.save("a", execution_state={"n": 1}, lease=old)
        clock.forward(16)
        other.expire(first)
        other.gc()
        assert other.session("s") is None
        new = other.lease("s")
        assert new.token > old.token
        with pytest.raises(LeaseLostError):
            one.save("a", execution_state={"n": 2}, lease=old)


class TestCollection:
    """A lease that lives is never lost to it, and one that is over leaves nothing behind."""

    def rows(self, store: Store) -> int:
        return len(store.backend().scan("head")) + len(store.backend().scan("session"))

    def test_leaves_a_leased_session_of_which_everything_has_expired(
        self, one: SyncClient, other: SyncClient, clock: Clock
    ):
        lease = one.lease("s", seconds=15)
        first = one.save("a", execution_state={"n": 1}, lease=lease)
        other.expire(first)
        other.gc()
        with pytest.raises(LeaseHeldError):
            other.save("b", session_id="s")
        lease.renew()
        second = one.save("a", execution_state={"n": 2}, lease=lease)
        assert [(entry.checkpoint_id, entry.sequence) for entry in other.timeline(session_id="s")] == [(second, 2)]
        with pytest.raises(CheckpointExpiredError):  # its tree is there, so it is known
            other.restore(first)
        assert other.verify().ok

    def test_removes_it_once_the_lease_is_over(self, one: SyncClient, other: SyncClient, store: Store, clock: Clock):
        lease = one.lease("s", seconds=15)
        first = one.save("a", execution_state={"n": 1}, lease=lease)
        other.expire(first)
        clock.forward(15)
        assert other.gc().records == 1
        assert self.rows(store) == 0
        with pytest.raises(CheckpointNotFoundError):
            one.restore(first)

    def test_leaves_the_fork_of_another_session_that_is_leased(self, one: SyncClient, other: SyncClient):
        first = one.save("a", execution_state={"n": 1}, session_id="s")
        fork = one.fork(first, "fork").checkpoint_id
        lease = one.lease("fork")
        for id_ in (first, fork):
            other.expire(id_)
        other.gc()
        assert one.get(one.save("a", execution_state={"n": 2}, lease=lease)).sequence == 2
        assert one.verify().ok

    def test_leaves_a_session_that_is_leased_and_not_saved_to_yet(self, one: SyncClient, other: SyncClient):
        lease = one.lease("s")
        other.gc()
        with pytest.raises(LeaseHeldError):
            other.save("b", session_id="s")
        saved = one.save("a", execution_state={"n": 1}, lease=lease)
        assert other.latest(session_id="s").checkpoint_id == saved

    @pytest.mark.parametrize("ends_by", ["time", "release"])
    def test_removes_a_session_that_was_leased_and_never_saved_to(
        self, one: SyncClient, other: SyncClient, store: Store, clock: Clock, ends_by: str
    ):
        lease = one.lease("s", seconds=15)
        if ends_by == "time":
            clock.forward(15)
        else:
            lease.release()
        other.gc(dry_run=True)
        assert self.rows(store) == 2
        other.gc()
        assert self.rows(store) == 0
        with pytest.raises(LeaseLostError):
            one.save("a", lease=lease)
        saved = one.save("a", execution_state={"n": 1}, session_id="s")  # though this client remembers the lease
        assert other.latest(session_id="s").checkpoint_id == saved

    def test_does_not_remove_a_session_that_is_saved_to_meanwhile(self, store: Store):
        collecting, recorder = store.recorded()
        client = store.client()
        client.lease("s").release()
        saved = []

        def meanwhile(_: object) -> None:
            recorder.before_commit = None
            saved.append(client.save("a", execution_state={"n": 1}, session_id="s"))

        recorder.before_commit = meanwhile
        collecting.gc()
        assert store.client().latest(session_id="s").checkpoint_id == saved[0]


class TestRenewal:
    def test_makes_it_last(self, one: SyncClient, other: SyncClient, clock: Clock):
        lease = one.lease("s", seconds=15)
        for _ in range(5):
            clock.forward(10)
            lease.renew()
        one.save("a", execution_state={"n": 1}, lease=lease)
        with pytest.raises(LeaseHeldError):
            other.lease("s")

    def test_does_not_make_the_next_save_read_its_list_again(self, store: Store):
        client, recorder = store.recorded()
        lease = client.lease("s")
        state = {"messages": messages(100)}
        client.save("a", execution_state=state, lease=lease)
        lease.renew()
        recorder.forget()
        state["messages"] += messages(1, start=100)
        client.save("a", execution_state=state, lease=lease)
        assert recorder.calls == {"commit_all": 1}

    def test_beside_saves_of_the_same_holder_loses_none(self, store: Store):
        client = store.client()
        with client.lease("s", seconds=30) as lease:
            stop = threading.Event()

            def renew() -> None:
                while not stop.is_set():
                    lease.renew()

            renewing = threading.Thread(target=renew)
            renewing.start()
            try:
                saved = [client.save("a", execution_state={"n": n}, lease=lease) for n in range(100)]
            finally:
                stop.set()
                renewing.join()
        assert [entry.checkpoint_id for entry in client.timeline(session_id="s", limit=None)] == saved[::-1]

    @pytest.mark.slow
    def test_happens_by_itself_in_a_with_block(self, store: Store):
        client, other = store.client(), store.client()

        def story(seconds: int) -> None:
            with client.lease("s", seconds=seconds, holder="looked after") as lease:
                end, deadline = lease.expires_at_us + seconds * 1_000_000, time.monotonic() + 3 * seconds
                while lease.expires_at_us <= end:  # until it is renewed beyond the time that it was given at first
                    if time.monotonic() > deadline:
                        raise LeaseLostError("it was not renewed")
                    time.sleep(0.05)
                client.save("a", execution_state={}, lease=lease)
                with pytest.raises(LeaseHeldError):
                    other.save("a", session_id="s")

        in_time(story)
        other.save("a", session_id="s")  # released at the end of the block

    @pytest.mark.slow
    def test_happens_by_itself_in_an_async_with_block(self, store: Store):
        async def use(seconds: int) -> None:
            client, other = store.async_client(), store.async_client()
            async with client.lease("s", seconds=seconds) as lease:
                end, deadline = lease.expires_at_us + seconds * 1_000_000, time.monotonic() + 3 * seconds
                while lease.expires_at_us <= end:
                    if time.monotonic() > deadline:
                        raise LeaseLostError("it was not renewed")
                    await asyncio.sleep(0.05)
                await client.save("a", execution_state={}, lease=lease)
                with pytest.raises(LeaseHeldError):
                    await other.save("a", session_id="s")
            await other.save("a", session_id="s")
            by_hand = await client.lease("s")
            await by_hand.renew()
            assert await by_hand.release() is True

        in_time(lambda seconds: asyncio.run(use(seconds)))

    def test_ends_when_the_lease_is_lost_and_the_block_says_so_at_the_next_save(self, store: Store):
        client, other = store.client(), store.client()
        with pytest.raises(LeaseLostError), client.lease("s", seconds=60) as lease:
            stolen = LeaseTerms("s", "thief", 60, lease.token, lease.expires_at_us)
            other.save("a", lease=stolen)  # the token is all that counts
            other.handoff(other.latest(session_id="s").checkpoint_id, "b", lease=stolen)
            client.save("a", lease=lease)


class TestWaiting:
    def test_until_it_is_released(self, store: Store):
        one, other = store.client(), store.client()
        held = one.lease("s")
        releasing = threading.Timer(0.3, held.release)
        releasing.start()
        lease = other.lease("s", wait=30)
        releasing.join()
        other.save("b", lease=lease)

    def test_ends_with_the_error_that_says_who_holds_it(self, store: Store):
        one, other = store.client(), store.client()
        one.lease("s", holder="worker 1")
        with pytest.raises(LeaseHeldError, match="worker 1"):
            other.lease("s", wait=0.05)


DIES_HOLDING = """
import os, sys
from holdfast import SyncClient
client = SyncClient.open(sys.argv[1])
lease = client.lease("s", seconds=3600, holder="the dead")
client.save("a", execution_state={"n": 1}, lease=lease)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says for certain that a process of a boot has ended")
class TestAHolderThatDied:
    @pytest.fixture
    def shared(self, store: Store) -> Store:
        if store.kind == "memory":
            pytest.skip("a store in memory is gone with its holder")
        return store

    def test_on_this_machine_is_replaced_at_once(self, shared: Store):
        holder = python_process(DIES_HOLDING, shared.url)
        assert holder.stdout.readline() == "held\n"
        client = shared.client()
        with pytest.raises(LeaseHeldError, match="the dead"):
            client.lease("s")
        holder.kill()
        os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)  # dead, and not yet reaped by its parent
        lease = client.lease("s")
        client.save("b", execution_state={"n": 2}, lease=lease)
        holder.communicate()
        assert client.latest(session_id="s").agent_id == "b"

    def test_is_replaced_by_a_plain_save_too(self, shared: Store):
        holder = python_process(DIES_HOLDING, shared.url)
        assert holder.stdout.readline() == "held\n"
        holder.kill()
        holder.communicate()
        shared.client().save("b", execution_state={"n": 2}, session_id="s")

    def test_while_it_is_only_paused_it_holds(self, shared: Store):
        holder = python_process(DIES_HOLDING, shared.url)
        assert holder.stdout.readline() == "held\n"
        holder.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(LeaseHeldError):
                shared.client().lease("s")
        finally:
            holder.kill()
            holder.communicate()

    def test_processes_of_other_machines_and_boots_are_not_judged(self):
        child = subprocess.Popen([sys.executable, "-c", "pass"])
        child.wait()
        gone = Process(this_process().place, child.pid, 1)
        assert has_ended(gone)
        assert not has_ended(gone._replace(place="another machine"))
        assert not has_ended(gone._replace(place=""))
        assert not has_ended(this_process())
        assert has_ended(this_process()._replace(started=1))  # the number of a process that ended is used again

    def test_a_process_whose_first_thread_has_ended_lives_until_the_last_one_has(self):
        child = subprocess.Popen(
            [sys.executable, "-c", LOSES_ITS_FIRST_THREAD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        held = Process(*json.loads(child.stdout.readline()))
        status = Path(f"/proc/{child.pid}/stat")
        wait_until(lambda: status.read_text().rpartition(")")[2].split()[0] == "Z")
        assert not has_ended(held)
        child.stdin.close()  # ends the other thread
        wait_until(lambda: has_ended(held))  # not reaped yet
        child.wait()
        child.stdout.close()
        assert has_ended(held)


LOSES_ITS_FIRST_THREAD = """
import ctypes, json, os, sys, threading
from holdfast.coordination.process import this_process

def wait():
    print(json.dumps(this_process()), flush=True)
    sys.stdin.read()
    os._exit(0)

threading.Thread(target=wait).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def wait_until(is_so):
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class TestWrongArguments:
    def test_are_refused_by_name(self, one: SyncClient):
        lease = one.lease("s")
        with pytest.raises(UsageError, match="the lease is for session 's', not for 't'"):
            one.save("a", session_id="t", lease=lease)
        with pytest.raises(UsageError, match="lease is a str"):
            one.save("a", session_id="s", lease="token")
        with pytest.raises(UsageError, match="seconds is 0"):
            one.lease("t", seconds=0)
        with pytest.raises(UsageError, match="wait is -1"):
            one.lease("t", wait=-1)
        assert one.sessions() == []

    def test_a_holder_may_have_any_name(self, one: SyncClient, other: SyncClient):
        one.lease("s", holder="\ud800 ünï\0")
        with pytest.raises(LeaseHeldError) as caught:
            other.lease("s")
        assert caught.value.holder == "\ud800 ünï\0"


def test_of_many_that_ask_at_once_one_gets_it(store: Store):
    async def ask(client: Client) -> bool:
        try:
            await client.lease("s")
        except LeaseHeldError:
            return False
        return True

    async def all_ask() -> list[bool]:
        clients = [store.async_client() for _ in range(8)]
        return await asyncio.gather(*(ask(client) for client in clients for _ in range(4)))

    assert sum(asyncio.run(all_ask())) == 1
