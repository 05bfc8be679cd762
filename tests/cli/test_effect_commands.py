"""effects, resolve, and show's tasks: what runs did, from a shell."""

import json

import pytest

from holdfast import SyncClient


@pytest.fixture
def client(made):
    with SyncClient.sqlite(made.path) as client:
        yield client


def dies(**_):
    raise KeyboardInterrupt


@pytest.fixture
def doubted(client):
    """A session with one payment that is done, and one that nobody knows about."""
    with pytest.raises(KeyboardInterrupt), client.run("orders", agent_id="buyer") as run:
        for _ in run.tasks("orders", ["o-1"]):
            run.effect("pay", lambda to, amount: "r-1", to="bob", amount=5)
            run.effect("pay", dies, to="eve", amount=7)
    return client.effects(in_doubt=True)[0]


def test_effects_lists_them_and_those_in_doubt(run, doubted):
    result = run("effects", "orders")
    header, first, second = result.stdout.splitlines()
    assert header.split() == ["id", "session", "call", "kind", "state", "since", "(UTC)", "by"]
    assert first.startswith(f'{doubted.short_id}  orders   pay(to="eve", amount=7)  irreversible  started')
    assert 'pay(to="bob", amount=5)' in second
    assert run("effects", "--in-doubt").stdout.splitlines()[1:] == [first]
    result = run("effects", "main")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "no effects\n")
    assert run("effects", "nowhere").exit_code == 3


def test_effects_as_json_has_the_documented_fields(run, doubted):
    started, done = json.loads(run("effects", "--json").stdout)["effects"]
    assert (started["effect_id"], started["in_doubt"]) == (doubted.effect_id, True)
    assert (done["state"], done["result"], done["arguments"]) == ("done", "r-1", {"to": "bob", "amount": 5})
    assert [event["what"] for event in done["history"]] == ["started", "done"]


def test_resolve_says_what_happened_and_the_next_run_goes_by_it(run, client, doubted):
    result = run("resolve", doubted.short_id, "--done", "--result", '"r-2"', "--by", "ann", "--note", "asked the bank")
    assert (result.exit_code, result.stdout) == (0, f"done {doubted.effect_id}\n")
    assert "resolved: done by ann" in result.stderr
    with client.run("orders", agent_id="buyer") as running:
        for _ in running.tasks("orders", ["o-1"]):
            running.effect("pay", dies, to="bob", amount=5)
            assert running.effect("pay", dies, to="eve", amount=7) == "r-2"
    assert run("resolve", doubted.short_id, "--done").exit_code == 4


def test_resolve_needs_to_know_what_and_which(run, doubted):
    assert run("resolve", doubted.short_id).exit_code == 2
    contradicting = run("resolve", doubted.short_id, "--done", "--not-done")
    assert contradicting.exit_code == 2
    assert "one only" in contradicting.stderr
    assert json.loads(run("effects", "--in-doubt", "--json").stdout)["effects"][0]["state"] == "started"
    assert run("resolve", doubted.short_id, "--not-done", "--result", "1").exit_code == 2
    assert run("resolve", doubted.short_id, "--done", "--result", "{").exit_code == 2
    assert run("resolve", "00000000", "--done").exit_code == 3
    told = json.loads(run("resolve", doubted.effect_id, "--acknowledge", "--by", "ann", "--json").stdout)["effect"]
    assert (told["acknowledged"], told["state"]) == (True, "started")


def test_show_tells_the_progress_of_tasks(run, doubted):
    shown = run("show", "orders").stdout
    assert "orders               0 of 1 completed, 1 in_progress (at o-1)" in shown


def test_a_rollback_tells_what_it_leaves_behind_and_strict_takes_short_ids(run, client, doubted):
    with client.run("orders", agent_id="buyer") as life:
        life.effect("ship", lambda what: "s-1", what="pens", undo=print)
    start = client.timeline(session_id="orders")[-1].checkpoint_id
    shipped, paid = client.effects("orders")[0], client.effects("orders")[-1]
    head = client.session("orders").head.checkpoint_id
    for arguments in (["rollback", "orders", start, "--yes"], ["fork", start]):
        refused = run(*arguments, "--strict")
        assert (refused.exit_code, refused.stdout) == (4, "")
        assert f"effect {shipped.effect_id} ('ship') is done" in refused.stderr
        assert "--acknowledge ID, or leave out --strict" in refused.stderr
        assert "=" not in refused.stderr.splitlines()[-1]  # what Python would have it called
    dry = run("rollback", "orders", start, "--dry-run")
    assert f'stays done, and can be undone: ship(what="pens") ({shipped.short_id})' in dry.stderr
    assert f'outcome unknown: pay(to="eve", amount=7) ({doubted.short_id})' in dry.stderr
    planned = json.loads(run("rollback", "orders", start, "--dry-run", "--json").stdout)
    assert (planned["undos"], planned["unknown"]) == ([shipped.effect_id], [doubted.effect_id])
    few = run("rollback", "orders", start, "--strict", "--acknowledge", shipped.short_id, "--yes")
    assert few.exit_code == 4
    assert doubted.effect_id in few.stderr
    assert client.session("orders").head.checkpoint_id == head
    assert run("rollback", "orders", start, "--acknowledge", "00000000", "--yes").exit_code == 3
    named = [part for one in (shipped, doubted, paid) if one.effect_id in (*planned["effects"], *planned["unknown"])
             for part in ("--acknowledge", one.short_id)]  # fmt: skip
    assert run("rollback", "orders", start, "--strict", *named, "--yes").exit_code == 0
    assert client.session("orders").head.checkpoint_id == start
    forked = run("fork", start, "--strict", "--json")  # what is acknowledged is so for the tree
    assert forked.exit_code == 0
    assert (json.loads(forked.stdout)["consumers"], shipped.effect_id in json.loads(forked.stdout)["effects"]) == (
        [],
        True,
    )
    assert run("fork", start, "elsewhere", "--strict").exit_code == 2


def test_an_agent_that_went_on_from_a_handoff_is_named_and_may_be_acknowledged_by_its_end(run, client, made):
    with client.claim(made.handed, "approver", holder="desk 3") as claim:
        client.save("approver", lease=claim.lease, execution_state={"ok": True})
    dry = run("rollback", "main", made.first, "--dry-run")
    assert f"agent approver (desk 3) has continued from handoff {made.handed[-8:]}" in dry.stderr
    assert run("rollback", "main", made.first, "--strict", "--yes").exit_code == 4
    allowed = run("rollback", "main", made.first, "--strict", "--acknowledge", made.handed[-8:], "--yes")
    assert allowed.exit_code == 0
