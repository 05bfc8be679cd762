"""approvals, approve, reject: deciding from a shell."""

import json

import pytest

from holdfast import SyncClient


@pytest.fixture
def client(made):
    with SyncClient.sqlite(made.path) as client:
        yield client


@pytest.fixture
def asked(client):
    return client.request_approval(
        "main", "pay", {"to": "bob", "amount": 500}, identity=("to",), approvers="finance", summary="pay bob for May"
    )


def test_approvals_lists_what_waits(run, client, asked):
    result = run("approvals")
    assert result.exit_code == 0
    header, line = result.stdout.splitlines()
    assert header.split() == ["id", "session", "call", "for", "expires", "(UTC)", "status", "by"]
    assert line.startswith(f'{asked.short_id}  main     pay(to="bob", amount=500)  finance')
    assert run("approvals", "main").stdout == result.stdout
    client.decide(asked.approval_id, "approve", by="ann")
    result = run("approvals", "main")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "nothing waits for approval\n")
    assert "approved" in run("approvals", "--all").stdout


def test_approvals_as_json_has_the_documented_fields(run, asked):
    [found] = json.loads(run("approvals", "--json").stdout)["approvals"]
    assert found["approval_id"] == asked.approval_id
    assert (found["tool"], found["arguments"], found["identity"]) == (
        "pay",
        {"to": "bob", "amount": 500},
        {"to": "bob"},
    )
    assert (found["status"], found["gate"], found["kind"]) == ("pending", "approve", "irreversible")
    assert (found["approvers"], found["summary"], found["decision"]) == ("finance", "pay bob for May", None)


def test_approve_shows_the_whole_call_and_approves_it(run, client, asked):
    result = run("approve", asked.short_id, "--by", "ann", "--note", "fine", "--yes")
    assert (result.exit_code, result.stdout) == (0, f"approved {asked.approval_id}\n")
    assert "pay bob for May" in result.stderr
    assert "amount = 500" in result.stderr
    decision = client.approval(asked.approval_id).decision
    assert (decision.answer, decision.by, decision.note) == ("approve", "ann", "fine")


def test_an_explicit_approval_asks_and_a_confirmation_does_not(run, client, asked):
    result = run("approve", asked.short_id, "--by", "ann")
    assert result.exit_code == 2
    assert "--yes" in result.stderr
    assert client.approvals() == [asked]
    quick = client.request_approval("main", "post", {"text": "hi"}, gate="confirm")
    assert run("approve", quick.short_id, "--by", "ann").exit_code == 0


def test_modify_changes_the_arguments_that_it_names(run, client, asked):
    result = run("approve", asked.short_id, "--modify", '{"amount": 50}', "--by", "ann", "--yes", "--json")
    assert result.exit_code == 0
    printed = json.loads(result.stdout)
    assert printed["status"] == "modified"
    assert printed["decision"]["arguments"] == {"to": "bob", "amount": 50}
    assert printed["arguments"] == {"to": "bob", "amount": 500}
    assert client.approval(asked.approval_id).arguments == {"to": "bob", "amount": 50}


def test_a_modification_of_an_argument_that_the_call_has_not_decides_nothing(run, client, asked):
    result = run("approve", asked.short_id, "--modify", '{"amonut": 50}', "--by", "ann", "--yes")
    assert result.exit_code == 2
    assert "no argument 'amonut': it has 'to', 'amount'" in result.stderr
    assert client.approvals() == [asked]


@pytest.mark.parametrize("given", ["{", "[1]", '"text"'])
def test_a_modification_that_is_no_object_changes_nothing(run, client, asked, given):
    result = run("approve", asked.short_id, "--modify", given, "--yes")
    assert result.exit_code == 2
    assert "--modify" in result.stderr
    assert client.approvals() == [asked]


def test_reject_says_why(run, client, asked):
    result = run("reject", asked.approval_id, "--by", "ann", "--note", "too much")
    assert (result.exit_code, result.stdout) == (0, f"rejected {asked.approval_id}\n")
    assert client.approval(asked.approval_id).decision.note == "too much"


def test_without_a_name_the_user_of_the_machine_decides(run, client, asked, monkeypatch):
    monkeypatch.setenv("LOGNAME", "somebody")
    assert run("reject", asked.short_id).exit_code == 0
    assert client.approval(asked.approval_id).decision.by == "somebody"


def test_the_second_decision_is_a_conflict(run, asked):
    assert run("reject", asked.short_id, "--by", "ann").exit_code == 0
    result = run("approve", asked.short_id, "--by", "bea", "--yes")
    assert result.exit_code == 4
    assert "rejected by 'ann'" in result.stderr


@pytest.mark.parametrize("ref", ["00000000", "0199c0de-0000-7000-8000-000000000000", "pay"])
def test_an_approval_that_is_not_there_exits_with_3(run, asked, ref):
    for command in ("approve", "reject"):
        result = run(command, ref, "--by", "ann")
        assert result.exit_code == 3
        assert "holdfast approvals" in result.stderr


def test_names_can_not_speak_to_the_terminal(run, client, made):
    client.request_approval("main", "pay\x1b[2J", {"\x1b[1m": "\x1b]0;x\x07"}, summary="\x1b[31mred", gate="confirm")
    [approval] = client.approvals()
    for result in (run("approvals"), run("approve", approval.short_id, "--by", "\x1b")):
        assert "\x1b" not in result.output
        assert "\x07" not in result.output


def test_what_only_the_agent_knows_is_shown_and_kept(run, client, run_process):
    """Deciding must not need the agent's own types, nor change what was asked for."""
    from dataclasses import dataclass

    from holdfast import TypeRegistry

    @dataclass
    class Money:
        amount: int

    types = TypeRegistry()
    types.register(Money, name="shop.Money")
    with SyncClient.sqlite(client._ctx.backend.capabilities.location, types=types) as agent:
        asked = agent.request_approval("main", "pay", {"sum": Money(5)}, gate="confirm")
        result = run_process("approve", asked.short_id, "--by", "ann", "--json")
        assert result.returncode == 0, result.stderr
        assert json.loads(result.stdout)["arguments"]["sum"]["$type"] == "shop.Money"
        assert agent.use_approval(asked.approval_id, "main", "pay", {"sum": Money(5)}, by="e").used_by == "e"
