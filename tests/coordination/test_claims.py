"""claim: of those a handoff is addressed to, exactly one goes on from it, or gives it back."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from handoffs import entry, offered
from lease_renewal import in_time
from stores import SOME_ID, Clock, Store, messages, python_process

from holdfast import (
    CheckpointExpiredError,
    CheckpointNotFoundError,
    ConflictError,
    CorruptError,
    LeaseHeldError,
    LeaseLostError,
    SyncClaim,
    SyncClient,
    UsageError,
)
from holdfast.backends.port import Commit

pytestmark = pytest.mark.every_store

DIES_CLAIMING = """
import sys
from holdfast import SyncClient
claim = SyncClient.open(sys.argv[1]).claim(sys.argv[2], "b", seconds=3600, holder="the dead")
print("claimed", flush=True)
sys.stdin.read()
"""


class TestAClaim:
    def test_gives_the_checkpoint_and_the_lease_of_the_session(self, one: SyncClient, other: SyncClient):
        handed = offered(one)
        claim = other.claim(handed, "b", holder="worker 1")
        assert isinstance(claim, SyncClaim)
        assert (claim.handoff_id, claim.checkpoint.checkpoint_id) == (handed, handed)
        assert claim.checkpoint.execution_state == {"n": 1}
        assert (claim.lease.session_id, claim.lease.holder, claim.moved_from) == ("s", "worker 1", None)
        with pytest.raises(LeaseHeldError, match="worker 1"):
            one.save("a", session_id="s")
        saved = other.get(other.save("b", execution_state={"n": 2}, lease=claim.lease))
        assert saved.parent_id == handed
        assert "worker 1" in repr(claim)

    def test_is_refused_to_everybody_else_with_who_has_it(self, one: SyncClient, other: SyncClient, clock: Clock):
        handed = offered(one)
        one.claim(handed, "b", holder="worker 1", seconds=15)
        for client in (one, other):
            with pytest.raises(LeaseHeldError, match=rf"{handed} was claimed by 'worker 1' on .* UTC") as caught:
                client.claim(handed, "b")
            assert isinstance(caught.value, ConflictError)
            assert caught.value.holder == "worker 1"
            assert caught.value.expires_at == datetime.fromtimestamp(clock.us / 1e6 + 15, UTC)
        assert one.inbox("b") == other.inbox("b") == []
        found = entry(other, handed)
        assert (found.status, found.by, found.can_be_claimed) == ("claimed", "worker 1", False)
        assert found.since == datetime.fromtimestamp(clock.us / 1e6, UTC)

    def test_is_for_the_one_it_is_addressed_to(self, one: SyncClient):
        handed = offered(one)
        with pytest.raises(UsageError, match="is addressed to 'b', not to 'c'"):
            one.claim(handed, "c")
        with pytest.raises(UsageError, match="not addressed to an agent"):
            one.claim(one.get(handed).parent_id, "b")
        with pytest.raises(CheckpointNotFoundError):
            one.claim(SOME_ID, "b")
        with pytest.raises(CheckpointNotFoundError, match="no checkpoint, tag or session"):
            one.claim("nothing", "b")
        with pytest.raises(UsageError, match="not a checkpoint id"):
            one.claim(5, "b")
        with pytest.raises(UsageError, match="seconds is 0"):
            one.claim(handed, "b", seconds=0)
        assert [handoff.handoff_id for handoff in one.inbox("b")] == [handed]

    def test_makes_the_whole_chain_visible(self, one: SyncClient, other: SyncClient):
        first = one.save("a", execution_state={"n": 1}, session_id="s")
        handed = one.handoff(first, "b")
        with other.claim(handed, "b", holder="worker 1") as claim:
            answered = other.save("b", execution_state={"n": 2}, lease=claim.lease)
            back = other.handoff(answered, "a", lease=claim.lease)
        with one.claim(back, "a") as claim:
            last = one.save("a", execution_state={"n": 3}, lease=claim.lease)
        line = [last, back, answered, handed, first]
        assert [found.checkpoint_id for found in one.timeline(session_id="s")] == line
        assert [found.parent_id for found in one.timeline(session_id="s")] == [*line[1:], None]
        assert [found.agent_id for found in one.timeline(session_id="s")] == ["a", "b", "b", "a", "a"]
        tree = other.tree("s")
        assert tree.leaves == [last]
        assert set(tree.handoffs) == {handed, back}
        assert (tree.handoffs[handed].status, tree.handoffs[handed].by) == ("taken up", "worker 1")
        assert (tree.handoffs[handed].next_id, tree.handoffs[back].next_id) == (answered, last)
        assert other.verify().ok

    def test_does_not_read_the_list_again_for_the_first_save(self, store: Store):
        client, recorder = store.recorded()
        state = {"messages": messages(100)}
        handed = client.handoff(client.save("a", execution_state=state, session_id="s"), "b")
        with client.claim(handed, "b") as claim:
            recorder.forget()
            state["messages"] += messages(1, start=100)
            client.save("b", execution_state=state, lease=claim.lease)
            assert recorder.calls == {"commit_all": 1}

    def test_of_a_state_that_cannot_be_read_is_given_back(self, one: SyncClient, store: Store):
        handed = one.handoff(one.save("a", execution_state={"text": "x" * 9000}, session_id="s"), "b")
        backend = store.backend()
        [blob] = backend.page_blobs(None, 10)
        backend.commit_all([Commit(b"", delete_blobs={blob.hash: blob.written_at_us + 1})])
        with pytest.raises(CorruptError):
            one.claim(handed, "b")
        assert entry(one, handed).status == "open"

    def test_with_an_event_loop(self, store: Store):
        async def use() -> None:
            client, other = store.async_client(), store.async_client()
            handed = await client.handoff(await client.save("a", execution_state={"n": 1}, session_id="s"), "b")
            async with other.claim(handed, "b") as claim:
                assert claim.checkpoint.execution_state == {"n": 1}
                with pytest.raises(ConflictError):
                    await client.claim(handed, "b")
            by_hand = await client.claim(handed, "b")
            assert await by_hand.release() is True
            async with other.claim(handed, "b") as claim:
                saved = await other.save("b", execution_state={"n": 2}, lease=claim.lease)
            assert await client.inbox("b") == []
            assert (await client.latest(session_id="s")).checkpoint_id == saved

        asyncio.run(use())

    @pytest.mark.slow
    def test_is_renewed_with_an_event_loop(self, store: Store):
        async def use(seconds: int) -> None:
            client = store.async_client()
            handed = await client.handoff(await client.save("a", session_id="s"), "b")
            async with client.claim(handed, "b", seconds=seconds) as claim:
                end, deadline = claim.lease.expires_at_us + seconds * 1_000_000, time.monotonic() + 3 * seconds
                while claim.lease.expires_at_us <= end:
                    if time.monotonic() > deadline:
                        raise LeaseLostError("it was not renewed")
                    await asyncio.sleep(0.05)
                saved = await client.save("b", execution_state={"n": 2}, lease=claim.lease)
            assert (await client.latest(session_id="s")).checkpoint_id == saved

        in_time(lambda seconds: asyncio.run(use(seconds)))

    def test_of_many_that_ask_at_once_one_gets_it(self, store: Store):
        async def ask(client: object, handed: str) -> bool:
            try:
                await client.claim(handed, "b")
            except ConflictError:
                return False
            return True

        async def all_ask(handed: str) -> list[bool]:
            clients = [store.async_client() for _ in range(8)]
            return await asyncio.gather(*(ask(client, handed) for client in clients for _ in range(4)))

        assert sum(asyncio.run(all_ask(offered(store.client())))) == 1

    def test_waits_until_it_is_given_back(self, store: Store):
        one, other = store.client(), store.client()
        handed = offered(one)
        held = one.claim(handed, "b")
        releasing = threading.Timer(0.3, held.release)
        releasing.start()
        claim = other.claim(handed, "b", wait=30)
        releasing.join()
        other.save("b", lease=claim.lease)

    def test_stops_waiting_when_somebody_goes_on_from_it(self, store: Store):
        one, other = store.client(), store.client()
        handed = offered(one)
        held = one.claim(handed, "b")
        saving = threading.Timer(0.3, lambda: one.save("b", lease=held.lease))
        saving.start()
        with pytest.raises(ConflictError, match="was taken up"):
            other.claim(handed, "b", wait=30)
        saving.join()

    def test_waits_for_a_lease_that_has_nothing_to_do_with_it(self, one: SyncClient, other: SyncClient, clock: Clock):
        handed = offered(one)
        one.lease("s", holder="somebody", seconds=15)
        with pytest.raises(LeaseHeldError, match="'s' is leased to 'somebody'"):
            other.claim(handed, "b")
        clock.forward(15)
        other.claim(handed, "b")


class TestWhenSomebodySavedAfterTheHandoff:
    def test_the_head_moves_back_to_it_and_nothing_is_lost(self, one: SyncClient, other: SyncClient):
        handed = offered(one)
        late = one.save("a", execution_state={"n": "late"}, session_id="s")
        claim = other.claim(handed, "b")
        assert claim.moved_from == late
        assert claim.checkpoint.execution_state == {"n": 1}
        assert one.latest(session_id="s").checkpoint_id == handed
        saved = other.save("b", execution_state={"n": 2}, lease=claim.lease)
        assert other.get(saved).parent_id == handed
        assert set(one.tree("s").leaves) == {late, saved}
        assert one.restore(late).execution_state == {"n": "late"}
        assert one.verify().ok

    @pytest.mark.parametrize("is_same", [True, False])
    def test_a_client_that_remembers_the_later_one_builds_upon_the_handoff(self, store: Store, is_same: bool):
        """The lists of the later checkpoint must not be taken for those of the handoff."""
        one = store.client()
        handed = one.handoff(one.save("a", execution_state={"m": messages(20)}, session_id="s"), "b")
        one.save("a", execution_state={"m": messages(30)}, session_id="s")
        claimant = one if is_same else store.client()
        claimant.latest(session_id="s")
        with claimant.claim(handed, "b") as claim:
            saved = claimant.save("b", append={"m": ["new"]}, lease=claim.lease)
        assert one.restore(saved).execution_state == {"m": [*messages(20), "new"]}
        assert one.verify().ok

    def test_and_rolled_back_past_it(self, one: SyncClient, other: SyncClient):
        handed = offered(one)
        first = one.get(handed).parent_id
        one.rollback("s", to=first)
        assert [handoff.handoff_id for handoff in other.inbox("b")] == [handed]
        claim = other.claim(handed, "b")
        assert claim.moved_from == first
        assert other.latest(session_id="s").checkpoint_id == handed

    def test_who_saves_between_the_look_and_the_commit_is_not_overlooked(self, store: Store):
        client, recorder = store.recorded()
        other = store.client()
        handed = offered(client)
        late = []

        def meanwhile(commits: Sequence[Commit]) -> None:
            recorder.before_commit = None
            late.append(other.save("a", execution_state={"n": "late"}, session_id="s"))

        recorder.before_commit = meanwhile
        claim = client.claim(handed, "b")
        assert claim.moved_from == late[0]

    def test_a_handoff_that_expires_meanwhile_is_not_claimed(self, store: Store):
        client, recorder = store.recorded()
        other = store.client()
        handed = offered(client)
        late = client.save("a", session_id="s")

        def meanwhile(commits: Sequence[Commit]) -> None:
            recorder.before_commit = None
            other.expire(handed)

        recorder.before_commit = meanwhile
        with pytest.raises(CheckpointExpiredError):
            client.claim(handed, "b")
        assert client.latest(session_id="s").checkpoint_id == late
        client.save("a", session_id="s")  # it is not leased


class TestGoingOnFromIt:
    def test_takes_it_up_for_good(self, one: SyncClient, other: SyncClient, clock: Clock):
        handed = offered(one)
        with one.claim(handed, "b", holder="worker 1") as claim:
            clock.forward(1)
            saved = one.save("b", execution_state={"n": 2}, lease=claim.lease)
            one.save("b", execution_state={"n": 3}, lease=claim.lease)
        assert other.inbox("b") == []
        with pytest.raises(ConflictError, match=rf"was taken up by 'worker 1', who went on with {saved} on .* UTC"):
            other.claim(handed, "b")
        found = entry(other, handed)
        assert (found.status, found.by, found.next_id) == ("taken up", "worker 1", saved)
        assert found.since == datetime.fromtimestamp(clock.us / 1e6, UTC)

    def test_under_another_name_takes_it_up_too(self, one: SyncClient):
        handed = offered(one)
        with one.claim(handed, "b") as claim:
            one.save("one of b's helpers", lease=claim.lease)
        assert entry(one, handed).status == "taken up"

    def test_as_the_target_without_a_claim_takes_it_up_too(self, one: SyncClient, other: SyncClient):
        handed = offered(one)
        saved = other.save("b", execution_state={"n": 2}, session_id="s")
        assert one.inbox("b") == []
        found = entry(one, handed)
        assert (found.status, found.by, found.next_id) == ("taken up", "b", saved)

    def test_of_others_does_not(self, one: SyncClient, other: SyncClient):
        handed = offered(one)
        one.save("a", session_id="s")
        one.fork(handed, "t")
        other.save("b", session_id="t")  # another line
        other.save("b", session_id="u", parent_id=handed)
        with one.lease("s") as lease:
            one.save("a", parent_id=handed, lease=lease)
        assert [handoff.handoff_id for handoff in one.inbox("b")] == [handed]

    def test_and_dying_leaves_the_session_to_whoever_leases_it(self, one: SyncClient, other: SyncClient, clock: Clock):
        handed = offered(one)
        dead = one.claim(handed, "b", seconds=15)
        saved = one.save("b", execution_state={"n": 2}, lease=dead.lease)
        clock.forward(16)
        with pytest.raises(ConflictError, match="take its `lease`"):
            other.claim(handed, "b")
        with other.lease("s") as lease:
            assert other.latest(session_id="s").checkpoint_id == saved
            other.save("b", execution_state={"n": 3}, lease=lease)
        with pytest.raises(LeaseLostError):
            one.save("b", execution_state={"n": "paused"}, lease=dead.lease)

    def test_is_noticed_though_the_row_was_looked_at_before(self, store: Store):
        client, recorder = store.recorded()
        other = store.client()
        handed = offered(client)

        def meanwhile(commits: Sequence[Commit]) -> None:
            recorder.before_commit = None
            other.save("b", session_id="s")

        recorder.before_commit = meanwhile
        with pytest.raises(ConflictError, match="was taken up by 'b'"):
            client.claim(handed, "b")


class TestGivingItBack:
    def test_by_release(self, one: SyncClient, other: SyncClient):
        handed = offered(one)
        claim = one.claim(handed, "b")
        assert claim.release() is True
        assert claim.release() is False
        assert [handoff.status for handoff in other.inbox("b")] == ["open"]
        other.claim(handed, "b")
        with pytest.raises(LeaseLostError):
            one.save("b", lease=claim.lease)

    def test_by_leaving_the_block_without_a_save(self, one: SyncClient, other: SyncClient):
        handed = offered(one)
        with one.claim(handed, "b"):
            assert other.inbox("b") == []
        assert [handoff.handoff_id for handoff in other.inbox("b")] == [handed]

    def test_by_an_error(self, one: SyncClient, other: SyncClient):
        handed = offered(one)
        with pytest.raises(ZeroDivisionError), one.claim(handed, "b"):
            _ = 1 / 0
        other.claim(handed, "b")

    def test_does_not_give_back_what_was_taken_up(self, one: SyncClient, other: SyncClient):
        handed = offered(one)
        with pytest.raises(ZeroDivisionError), one.claim(handed, "b") as claim:
            one.save("b", lease=claim.lease)
            _ = 1 / 0
        assert other.inbox("b") == []

    def test_by_time(self, one: SyncClient, other: SyncClient, clock: Clock):
        handed = offered(one)
        paused = one.claim(handed, "b", holder="paused", seconds=15)
        clock.forward(15)
        [found] = other.inbox("b")
        assert (found.status, found.by, found.can_be_claimed) == ("timed out", "paused", True)
        with other.claim(handed, "b") as claim:
            assert claim.lease.token > paused.lease.token
            saved = other.save("b", execution_state={"n": 2}, lease=claim.lease)
        with pytest.raises(LeaseLostError):
            one.save("b", execution_state={"n": "paused"}, lease=paused.lease)
        assert [found.checkpoint_id for found in one.timeline(session_id="s")][:2] == [saved, handed]

    def test_by_time_though_a_stranger_saved_since(self, one: SyncClient, other: SyncClient, clock: Clock):
        """Not the claimant went on, so it is not taken up."""
        handed = offered(one)
        one.claim(handed, "b", seconds=15)
        clock.forward(15)
        late = other.save("a", execution_state={"n": "late"}, session_id="s")
        [found] = other.inbox("b")
        assert (found.status, found.by) == ("open", None)
        assert other.claim(handed, "b").moved_from == late

    def test_by_dying(self, shared_store: Store):
        handed = offered(shared_store.client())
        holder = python_process(DIES_CLAIMING, shared_store.url, handed)
        assert holder.stdout.readline() == "claimed\n"
        client = shared_store.client()
        with pytest.raises(LeaseHeldError, match="the dead"):
            client.claim(handed, "b")
        holder.kill()
        holder.communicate()
        if sys.platform != "linux":
            pytest.skip("only Linux says for certain that a process of a boot has ended")
        assert [found.status for found in client.inbox("b")] == ["timed out"]
        client.claim(handed, "b")
