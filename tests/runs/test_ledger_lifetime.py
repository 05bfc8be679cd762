"""Ledger and approvals belong to their tree: copied, verified and collected with it."""

from __future__ import annotations

import io

import pytest
from stores import Store

from holdfast import ApprovalPendingError, ConflictError, EffectBlockedError, EffectUnknownError, SyncClient
from holdfast.backends.port import Commit, RowWrite
from holdfast.format.rows import ledger


def paid(client: SyncClient, amount: int = 5) -> str:
    with client.run("s") as run:
        before = run.save("before")
        run.effect("pay", lambda amount: "receipt", amount)
    return str(before)


def dies() -> None:
    raise KeyboardInterrupt


def exported(client: SyncClient) -> io.BytesIO:
    bundle = io.BytesIO()
    client.export(bundle)
    bundle.seek(0)
    return bundle


def test_an_import_brings_the_ledger_so_nothing_is_repeated_there(client: SyncClient):
    before = paid(client)
    with pytest.raises(KeyboardInterrupt), client.run("s") as run:
        run.effect("order", dies)
    other = SyncClient.memory()
    other.import_(exported(client))
    assert other.effects() == client.effects()
    with pytest.raises(EffectUnknownError), other.run("s") as run:
        run.effect("order", dies)
    other.rollback("s", before)
    with pytest.raises(EffectBlockedError), other.run("s") as run:
        run.effect("pay", lambda amount: "receipt", 5)
    other.close()


def test_what_is_known_later_is_brought_later_and_what_contradicts_is_refused(client: SyncClient):
    with pytest.raises(KeyboardInterrupt), client.run("s") as run:
        run.step("one", lambda: 1)
        run.effect("order", dies)
    other = SyncClient.memory()
    early = exported(client)
    other.import_(early)
    [effect] = client.effects()
    client.resolve_effect(effect.effect_id, "done", result=1, by="ann")
    other.import_(exported(client))
    assert other.effects() == client.effects()
    early.seek(0)
    other.import_(early)  # what is known here already is more
    assert other.effects()[0].state == "done"
    third = SyncClient.memory()
    early.seek(0)
    third.import_(early)
    third.resolve_effect(effect.effect_id, "not_done", by="bob")
    with pytest.raises(ConflictError, match="another way"):
        third.import_(exported(client))
    other.close()
    third.close()


def test_collection_keeps_the_ledger_as_long_as_its_tree_and_doubts_for_good(client: SyncClient):
    paid(client)
    with pytest.raises(KeyboardInterrupt), client.run("s") as run:
        run.effect("order", dies)
    for entry in client.timeline(session_id="s", limit=None)[1:]:
        client.expire(entry.checkpoint_id)
    client.gc()
    assert {effect.tool for effect in client.effects()} == {"pay", "order"}
    client.expire(client.latest(session_id="s").checkpoint_id)
    client.gc()
    assert [effect.tool for effect in client.effects()] == ["order"]
    client.resolve_effect(client.effects()[0].effect_id, "not_done", by="ann")
    client.gc()
    assert client.effects() == []


def test_verify_finds_a_damaged_entry(store: Store):
    client = store.client()
    paid(client)
    assert client.verify().ok
    backend = store.backend()
    [(key, row)] = backend.scan(ledger.LEDGER)
    damaged = bytes((row.value[0] ^ 1,)) + row.value[1:]
    assert backend.commit_all([Commit(tree=key.tree, rows=[RowWrite(key, damaged)])]) == [None]
    [problem] = client.verify().problems
    assert "ledger" in problem.message


def test_check_migrations_says_what_a_newer_holdfast_left(client: SyncClient):
    paid(client)
    assert client.check_migrations().problems == ()
    client.save("a", session_id="t", context={"holdfast.run": {"v": 9, "tools": {}, "steps": []}})
    [problem] = client.check_migrations().problems
    assert (problem.session_id, problem.reason) == ("t", "newer_holdfast")


def test_files_are_part_of_the_runs_checkpoints(client: SyncClient, tmp_path):
    directory = tmp_path / "work"
    directory.mkdir()
    with client.run("s", workspace=directory) as run:
        run.step("write", lambda: (directory / "a.txt").write_text("one") and None)
        run.effect("publish", lambda: "out", kind="reversible")
    first, *_, last = [entry.workspace for entry in client.timeline(session_id="s", limit=None)]
    assert first is not None
    assert last is not None


def asked(client: SyncClient, session: str = "s") -> str:
    """The approval that a payment of that session waits for."""
    with pytest.raises(ApprovalPendingError), client.run(session) as run:
        run.step("plan", lambda: 1)
        run.effect("pay", pay, 5, approve="finance")
    [waiting] = client.approvals(session)
    return waiting.approval_id


def pay(amount: int) -> str:
    return f"{amount} paid"


def test_what_waits_for_approval_waits_on_where_it_is_imported(client: SyncClient):
    approval = asked(client)
    other = SyncClient.memory()
    other.import_(exported(client))
    assert other.approvals() == client.approvals()
    assert asked(other) == approval
    other.decide(approval, "approve", by="ann")
    with other.run("s") as run:
        assert run.effect("pay", pay, 5, approve="finance") == "5 paid"
    assert other.approval(approval).used_by == other.effects()[0].effect_id
    assert client.approval(approval).is_pending
    client.import_(exported(other))  # what was decided and used there is known here: nobody is asked any more
    assert client.approvals() == []
    assert client.approval(approval).used_by == other.effects()[0].effect_id
    with client.run("s") as run:
        assert run.effect("pay", pay, 5, approve="finance") == "5 paid"
    other.close()


def test_one_decision_is_not_used_in_two_stores(client: SyncClient):
    approval = asked(client)
    client.decide(approval, "approve", by="ann")
    bundle = exported(client)
    other = SyncClient.memory()
    other.import_(bundle)
    known = other.approval(approval)
    assert known.decision == client.approval(approval).decision
    assert (known.status, client.approval(approval).status) == ("void", "approved")
    assert asked(other) != approval
    bundle.seek(0)
    other.import_(bundle)
    assert len(other.approvals(pending=False)) == 2
    client.import_(exported(other))  # what was decided here stays
    assert client.approval(approval).is_granted
    other.close()


def test_approvals_go_with_their_own_session_only(client: SyncClient):
    approval = asked(client)
    fork = client.fork(client.latest(session_id="s").checkpoint_id, "forked")
    asked(client, fork.session_id)
    bundle = io.BytesIO()
    client.export(bundle, "s")
    bundle.seek(0)
    other = SyncClient.memory()
    other.import_(bundle)
    assert [one.approval_id for one in other.approvals(pending=False)] == [approval]
    other.close()
