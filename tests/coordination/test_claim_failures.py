"""claim and handoff when things go wrong: claimants that die, commits whose outcome is not known, nothing gets lost."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from handoffs import entry, offered
from stores import SOME_ID, Clock, Recorder, Store

from holdfast import (
    ConflictError,
    LeaseHeldError,
    LeaseLostError,
    StoreError,
    SyncClient,
)
from holdfast.backends.port import Commit
from holdfast.model.lease import LeaseTerms


class TestHandingOn:
    def test_by_the_claimant_says_where_it_went(self, one: SyncClient, other: SyncClient):
        handed = offered(one)
        with one.claim(handed, "b") as claim:
            onward = one.handoff(handed, "c", lease=claim.lease)
        assert one.inbox("b") == []
        assert [found.handoff_id for found in other.inbox("c")] == [onward]
        with pytest.raises(ConflictError, match=rf"{handed} was handed on, on .* UTC, as {onward}"):
            other.claim(handed, "b")
        found = entry(other, handed)
        assert (found.status, found.next_id) == ("passed on", onward)
        with other.claim(onward, "c") as claim:
            assert claim.checkpoint.execution_state == {"n": 1}
            assert claim.checkpoint.parent_id == handed

    def test_by_anybody_while_nobody_has_it(self, one: SyncClient, other: SyncClient):
        handed = offered(one)
        onward = other.handoff(handed, "c")
        assert (one.inbox("b"), one.inbox("c")[0].handoff_id) == ([], onward)

    def test_by_others_is_refused_while_somebody_has_it(self, one: SyncClient, other: SyncClient):
        handed = offered(one)
        one.claim(handed, "b")
        with pytest.raises(LeaseHeldError):
            other.handoff(handed, "c")
        assert other.inbox("c") == []

    def test_back_to_where_it_came_from(self, one: SyncClient):
        handed = offered(one)
        with one.claim(handed, "b") as claim:
            back = one.handoff(handed, "a", lease=claim.lease)
        assert [found.handoff_id for found in one.inbox("a")] == [back]

    def test_to_the_same_agent_offers_it_again(self, one: SyncClient):
        handed = offered(one)
        with one.claim(handed, "b") as claim:
            one.save("b", execution_state={"n": "wrong"}, lease=claim.lease)
        again = one.handoff(handed, "b")
        assert [found.handoff_id for found in one.inbox("b")] == [again]
        assert one.claim(again, "b").checkpoint.execution_state == {"n": 1}

    def test_under_the_token_of_a_claim_that_another_process_made(self, one: SyncClient, other: SyncClient):
        handed = offered(one)
        claim = one.claim(handed, "b", seconds=60)
        terms = LeaseTerms("s", "a script", 60, claim.lease.token, claim.lease.expires_at_us)
        onward = other.handoff(handed, "c", lease=terms)
        assert entry(one, handed).next_id == onward


class Unacknowledged(Recorder):
    """A store that carries out what it is asked for, and then loses the answer."""

    is_mute = False

    def commit_all(self, commits: Sequence[Commit]) -> list[BaseException | None]:
        outcomes = super().commit_all(commits)
        return [StoreError("the connection was lost") for _ in outcomes] if self.is_mute else outcomes


class TestAnUnclearFailure:
    """P9: the claim may or may not have been made."""

    @pytest.fixture
    def muted(self, store: Store) -> tuple[SyncClient, Unacknowledged]:
        backend = Unacknowledged(store.backend())
        return SyncClient(backend), backend

    def test_repeated_with_its_id_gives_the_claim_that_was_made(self, muted, store: Store):
        client, backend = muted
        handed = offered(client)
        late = client.save("a", session_id="s")
        backend.is_mute = True
        with pytest.raises(StoreError) as caught:
            client.claim(handed, "b")
        backend.is_mute = False
        assert caught.value.claim_id
        with pytest.raises(LeaseHeldError):  # it was made, so without its id it is somebody's
            store.client().claim(handed, "b")
        claim = client.claim(handed, "b", claim_id=caught.value.claim_id)
        assert (claim.claim_id, claim.moved_from) == (caught.value.claim_id, late)
        saved = client.save("b", lease=claim.lease)
        assert client.get(saved).parent_id == handed
        assert entry(client, handed).status == "taken up"

    def test_repeated_with_its_id_makes_the_claim_that_was_not_made(self, store: Store):
        client, recorder = store.recorded()
        handed = offered(client)

        def fail(commits: Sequence[Commit]) -> None:
            recorder.before_commit = None
            raise StoreError("the disk is full")

        recorder.before_commit = fail
        with pytest.raises(StoreError) as caught:
            client.claim(handed, "b")
        assert entry(client, handed).status == "open"
        claim = client.claim(handed, "b", claim_id=caught.value.claim_id)
        client.save("b", lease=claim.lease)

    def test_repeated_after_another_got_it_is_refused(self, store: Store):
        """The id is the claim's own: whoever comes too late can't take it for theirs."""
        client, recorder = store.recorded()
        other = store.client()
        handed = offered(client)

        def fail(commits: Sequence[Commit]) -> None:
            recorder.before_commit = None
            other.claim(handed, "b", holder="the other")
            raise StoreError("the disk is full")

        recorder.before_commit = fail
        with pytest.raises(StoreError) as caught:
            client.claim(handed, "b")
        with pytest.raises(LeaseHeldError, match="the other"):
            client.claim(handed, "b", claim_id=caught.value.claim_id)

    def test_repeated_when_its_lease_is_over_is_a_new_claim(self, one: SyncClient, clock: Clock):
        handed = offered(one)
        first = one.claim(handed, "b", seconds=15, claim_id=SOME_ID)
        again = one.claim(handed, "b", seconds=15, claim_id=SOME_ID)
        assert (again.claim_id, again.lease.token) == (SOME_ID, first.lease.token)
        clock.forward(16)
        anew = one.claim(handed, "b", seconds=15, claim_id=SOME_ID)
        assert anew.lease.token > first.lease.token
        with pytest.raises(LeaseLostError):
            one.save("b", lease=first.lease)

    def test_repeated_after_it_was_taken_up_is_refused(self, one: SyncClient):
        handed = offered(one)
        claim = one.claim(handed, "b", claim_id=SOME_ID)
        one.save("b", lease=claim.lease)
        with pytest.raises(ConflictError, match="was taken up"):
            one.claim(handed, "b", claim_id=SOME_ID)

    def test_of_the_first_save_leaves_nothing_half_done(self, muted):
        client, backend = muted
        handed = offered(client)
        claim = client.claim(handed, "b")
        backend.is_mute = True
        with pytest.raises(StoreError) as caught:
            client.save("b", execution_state={"n": 2}, lease=claim.lease)
        backend.is_mute = False
        claim.release()
        assert client.inbox("b") == []
        assert entry(client, handed).next_id == caught.value.checkpoint_id
