"""Which tool calls of a model are one decision, and which are two: after a crash, an exception, a
rollback, and side by side."""

from __future__ import annotations

import pytest
from agent_models import Script, calls
from agent_tools import Bank

from holdfast import SyncFileCheckpoints, agent, tool


class Shell:
    """A tool of which nothing is declared, and which ends the process when it is to."""

    def __init__(self, **options):
        self.ran = []
        self.keys = []
        self.fails_with = None

        @tool(**options)
        def bash(command: str, idempotency_key: str = "") -> str:
            self.ran.append(command)
            self.keys.append(idempotency_key)
            if self.fails_with is not None:
                raise self.fails_with
            return f"{command}: ok"

        self.bash = bash


def make_test(id_):
    return calls((id_, "bash", {"command": "make test"}))


def pays(*wanted):
    """Calls of a bank in one message: (id, amount) each."""
    return calls(*((id_, "pay", {"to": "bob", "amount": amount}) for id_, amount in wanted))


@pytest.fixture(params=["client", "files"])
def checkpoints(request, sqlite_store, tmp_path):
    """As another process opens it."""
    return {"client": sqlite_store.client, "files": lambda: SyncFileCheckpoints(tmp_path / "plain")}[request.param]


def bot_of(model, tools, checkpoints, **options):
    return agent(model=model, tools=tools, checkpoints=checkpoints(), session_id="s", **options)


def die_in(tools, world, checkpoints, *replies):
    """The process dies inside of the last call of the last reply."""
    world.fails_with = SystemExit("killed")
    with pytest.raises(SystemExit):
        bot_of(Script(*replies), tools, checkpoints).generate("go")
    world.fails_with = None


# -- tools without a kind ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["execute", "error"])
def test_a_new_call_of_a_tool_without_a_kind_is_made_after_a_crash(checkpoints, policy):
    shell = Shell()
    die_in([shell.bash], shell, checkpoints, make_test("c1"))
    model = Script(make_test("c2"), "done")
    bot_of(model, [shell.bash], checkpoints, on_open_call=policy).generate()
    cut_off, again = model.last_answers
    assert "It is unknown whether this call was carried out" in cut_off
    assert "a new call, and it is carried out" in cut_off
    assert again == "make test: ok"
    assert shell.ran == ["make test"] * 2
    assert len(set(shell.keys)) == 2  # two decisions: the other side must not take them for one


def test_nor_is_it_blocked_after_an_exception(checkpoints):
    shell = Shell()
    shell.fails_with = OSError("no space left")
    model = Script(make_test("c1"), make_test("c2"), "done")
    turn = bot_of(model, [shell.bash], checkpoints).generate("go")
    assert shell.ran == ["make test"] * 2
    assert all("OSError: no space left" in told for told in model.last_answers)
    assert "calls_in_doubt" not in turn.state.metadata


def test_one_that_was_cut_off_is_not_made_again_by_the_loop(checkpoints):
    shell = Shell()
    die_in([shell.bash], shell, checkpoints, make_test("c1"))
    model = Script("I leave it")
    bot_of(model, [shell.bash], checkpoints).generate()
    assert shell.ran == ["make test"]
    assert "It is unknown" in model.last_answers[0]


def test_after_a_rollback_a_new_call_is_made_and_the_old_one_is_not(quick):
    client = quick
    shell = Shell()

    def bot(*replies):
        return agent(model=Script(*replies), tools=[shell.bash], checkpoints=client, session_id="s")

    bot(make_test("c1"), "done").generate("go")
    asked, begun = (client.timeline(session_id="s", limit=None)[at].checkpoint_id for at in (-2, -1))
    client.rollback("s", to=begun)
    bot(make_test("c2"), "done").generate()
    assert shell.ran == ["make test"] * 2
    client.rollback("s", to=asked)  # with the first call open: that one was made
    told = bot("well").generate().state.messages[-2]["content"]
    assert "carried out already" in told
    assert shell.ran == ["make test"] * 2


def test_what_declares_an_identity_or_a_probe_is_protected_without_a_kind(checkpoints):
    for options in ({"identity": ("command",)}, {"volatile": ("idempotency_key",)}, {"on_repeat": "block"}):
        assert Shell(**options).bash.kind == "irreversible"
    shell = Shell(identity=("command",))
    die_in([shell.bash], shell, checkpoints, make_test("c1"))
    bot_of(Script(make_test("c2"), "hm"), [shell.bash], checkpoints).generate()
    assert shell.ran == ["make test"]


# -- declared ones -----------------------------------------------------------------------------------------------------


def test_the_doubt_about_one_payment_leaves_the_others_alone(checkpoints):
    bank = Bank()
    die_in([bank.pay], bank, checkpoints, pays(("c1", 5), ("c2", 6), ("c3", 7)))
    model = Script(pays(("c4", 8)), pays(("c5", 5)), "done")
    bot_of(model, [bank.pay], checkpoints).generate()
    assert bank.paid == [("bob", amount) for amount in (5, 6, 7, 8)]
    assert ["It is unknown" in told for told in model.last_answers] == [True, False, False, False, True]


def test_two_equal_calls_of_one_message_are_two_decisions(checkpoints):
    bank = Bank()
    die_in([bank.pay], bank, checkpoints, pays(("c1", 5), ("c2", 5)))
    model = Script("hm")
    bot_of(model, [bank.pay], checkpoints).generate()
    assert bank.paid == [("bob", 5)] * 2
    assert ["It is unknown" in told for told in model.last_answers] == [True, False]


def test_an_equal_call_that_was_not_started_is_not_told_as_one_in_doubt(checkpoints):
    bank = Bank()
    die_in([bank.pay], bank, checkpoints, pays(("c1", 5), ("c2", 5)))
    model = Script("hm")
    bot_of(model, [bank.pay], checkpoints, on_open_call="error").generate()
    assert ["was not carried out" in told for told in model.last_answers] == [False, True]


@pytest.mark.parametrize("outcome", ["done", "not_done"])
def test_once_a_person_has_resolved_it_the_model_gets_the_truth(sqlite_store, outcome):
    bank = Bank()
    die_in([bank.pay], bank, sqlite_store.client, pays(("c1", 5), ("c2", 5)))
    model = Script(pays(("c3", 5), ("c4", 5)), "done")
    bot_of(Script("I wait"), [bank.pay], sqlite_store.client).generate()
    assert bank.paid == [("bob", 5)] * 2
    [doubt] = sqlite_store.client().effects("s", in_doubt=True)
    sqlite_store.client().resolve_effect(doubt.effect_id, outcome, result={"paid": 5}, by="ann")
    bot_of(model, [bank.pay], sqlite_store.client).generate("it is settled")
    again, another = model.last_answers[-2:]
    # The first call of the new message repeats the one in doubt, the second is one more.
    assert ("nothing was done again" in again) == (outcome == "done")
    assert another == '{"paid": 5}'
    assert len(bank.paid) == (3 if outcome == "done" else 4)
    assert sqlite_store.client().effects("s", in_doubt=True) == []
