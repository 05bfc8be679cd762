"""inbox: what was handed to an agent, who has claimed it, and how long it is listed."""

from __future__ import annotations

import os
from datetime import UTC, datetime

import pytest
from handoffs import entry, offered
from stores import SOME_ID, Clock, Store, python_process

from holdfast import (
    CheckpointBuilder,
    CheckpointExpiredError,
    CorruptError,
    HandoffStatus,
    SyncClient,
)
from holdfast.backends.port import Commit, RowKey, RowWrite


class TestTheInbox:
    def test_lists_what_was_handed_to_the_agent_the_oldest_first(
        self, one: SyncClient, other: SyncClient, clock: Clock
    ):
        made = []
        for number in range(3):
            made.append(offered(one, f"s{number}"))
            clock.forward(1)
        offered(one, "elsewhere", target="c")
        found = other.inbox("b")
        assert [handoff.handoff_id for handoff in found] == made
        assert [handoff.session_id for handoff in found] == ["s0", "s1", "s2"]
        first = found[0]
        assert (first.from_agent_id, first.target_agent_id, first.status) == ("a", "b", "open")
        assert first.offered_at == datetime.fromtimestamp(clock.us / 1e6 - 3, UTC)
        assert (first.by, first.since, first.next_id) == (None, None, None)
        assert first.can_be_claimed
        assert not first.checkpoint.has_state
        assert repr(first).startswith(f"<Handoff {made[0][-8:]} 'a' → 'b' open ")

    def test_is_empty_for_everybody_else(self, one: SyncClient):
        offered(one)
        for stranger in ("a", "c", "", "bb", "\x00b"):
            assert one.inbox(stranger) == []

    @pytest.mark.parametrize("name", ["", "\x00", "b/../c", "\ud800 ünï", "x" * 5000])
    def test_takes_any_name(self, one: SyncClient, other: SyncClient, name: str):
        handed = offered(one, target=name)
        assert [handoff.handoff_id for handoff in other.inbox(name)] == [handed]
        assert other.claim(handed, name).checkpoint.execution_state == {"n": 1}
        assert entry(other, handed, name).status == HandoffStatus.CLAIMED

    @pytest.mark.slow
    def test_of_many(self, one: SyncClient):
        first = one.save("a", execution_state={"n": 1}, session_id="s")
        made = [one.handoff(first, "b") for _ in range(450)]
        assert sorted(handoff.handoff_id for handoff in one.inbox("b")) == sorted(made)

    def test_carries_the_schema(self, one: SyncClient):
        one.handoff(one.save("a", session_id="s"), "b", schema="invoice@2")
        assert one.inbox("b")[0].schema == "invoice@2"

    def test_leaves_out_what_has_expired(self, one: SyncClient, clock: Clock):
        one.handoff(one.save("a", session_id="s", ttl_seconds=60), "b")
        withdrawn = offered(one, "t")
        clock.forward(61)
        one.expire(withdrawn)
        assert one.inbox("b", include_claimed=True) == []
        with pytest.raises(CheckpointExpiredError):
            one.claim(withdrawn, "b")

    def test_keeps_what_is_pinned(self, one: SyncClient, clock: Clock):
        handed = one.handoff(one.save("a", session_id="s", ttl_seconds=60), "b")
        one.pin(handed)
        clock.forward(61)
        assert [handoff.handoff_id for handoff in one.inbox("b")] == [handed]
        assert one.claim(handed, "b").handoff_id == handed

    def test_one_that_was_built_elsewhere_and_saved_is_there_too(self, one: SyncClient):
        built = CheckpointBuilder("a").session("s").execution_state({"n": 1}).handoff("b", schema="v1").build()
        saved = one.save_checkpoint(built)
        assert one.save_checkpoint(built) == saved
        [found] = one.inbox("b")
        assert (found.handoff_id, found.schema) == (saved, "v1")

    def test_a_repeated_handoff_is_there_once_and_stays_claimed(self, one: SyncClient, other: SyncClient):
        source = one.save("a", session_id="s")
        handed = one.handoff(source, "b", new_id=SOME_ID)
        other.claim(handed, "b")
        one.handoff(source, "b", new_id=SOME_ID)
        assert entry(one, handed).status == "claimed"

    def test_a_fork_of_a_handoff_is_none(self, one: SyncClient):
        handed = offered(one)
        one.fork(handed, "t")
        assert [handoff.handoff_id for handoff in one.inbox("b")] == [handed]

    def test_one_damaged_row_does_not_hide_the_others(self, one: SyncClient, store: Store, caplog):
        damaged, sound = offered(one), offered(one, "t")
        backend = store.backend()
        [(key, row)] = [found for found in backend.scan("inbox") if found[0].key.endswith(bytes.fromhex(damaged[-12:]))]
        changed = bytes([row.value[0] ^ 1, *row.value[1:]])
        assert backend.commit_all([Commit(key.tree, rows=[RowWrite(key, changed)])]) == [None]
        assert [handoff.handoff_id for handoff in one.inbox("b")] == [sound]
        assert damaged in caplog.text
        with pytest.raises(CorruptError):
            one.claim(damaged, "b")
        again = one.handoff(damaged, "b")  # it can be offered anew
        assert one.claim(again, "b").checkpoint.execution_state == {"n": 1}

    def test_looking_for_work_costs_what_waits_not_what_was_done(self, store: Store):
        client, recorder = store.recorded()
        handed = [client.handoff(client.save("a", session_id=f"s{n}"), "b") for n in range(20)]
        for id_ in handed[:-1]:
            with client.claim(id_, "b") as claim:
                client.save("b", lease=claim.lease)
        asked = []
        scan = recorder.inner.scan
        recorder.scan = lambda *args, **options: asked.append(found := scan(*args, **options)) or found
        assert [handoff.handoff_id for handoff in client.inbox("b")] == handed[-1:]
        assert sum(map(len, asked)) == 1


class TestCollection:
    def rows(self, store: Store) -> list[RowKey]:
        return [key for key, _ in store.backend().scan("inbox")]

    def test_removes_the_rows_of_handoffs_that_are_gone(self, one: SyncClient, store: Store, clock: Clock):
        kept = offered(one, "kept")
        done = offered(one, "done")
        with one.claim(done, "b") as claim:
            one.save("b", lease=claim.lease)
        one.handoff(one.save("a", session_id="by ttl", ttl_seconds=60), "b")
        one.expire(offered(one, "by hand"))
        assert len(self.rows(store)) == 4
        clock.forward(61)
        one.gc(dry_run=True)
        assert len(self.rows(store)) == 4
        one.gc()
        assert len(self.rows(store)) == 2
        assert {found.handoff_id for found in one.inbox("b", include_claimed=True)} == {kept, done}

    def test_of_a_whole_session_removes_them_too(self, one: SyncClient, store: Store):
        handed = offered(one)
        first = one.get(handed).parent_id
        one.expire(handed)
        one.expire(first)
        one.gc()
        one.gc()
        assert self.rows(store) == []
        assert one.session("s") is None


def test_the_inbox_is_read_from_another_process(shared_store: Store):
    handed = offered(shared_store.client())
    code = "import sys; from holdfast import SyncClient; print(SyncClient.open(sys.argv[1]).inbox('b')[0].handoff_id)"
    assert python_process(code, shared_store.url).communicate()[0] == f"{handed}{os.linesep}"
