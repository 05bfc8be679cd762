"""The reference loop and the outside world: payments that are made once, and calls that were cut off in the middle."""

from __future__ import annotations

import pytest
from agent_models import Script, calls
from agent_tools import LOOK, Bank, look, steps

from holdfast import (
    AgentState,
    ApprovalPendingError,
    EffectNotDoneError,
    OpenToolCallError,
    StakesPolicy,
    SyncFileCheckpoints,
    agent,
    tool,
)

# -- effects -----------------------------------------------------------------------------------------------------------


def test_an_exception_of_an_irreversible_tool_is_told_as_what_it_is(client):
    bank = Bank()
    bank.fails_with = TimeoutError("no answer")
    pay = calls(("c1", "pay", {"to": "bob", "amount": 5}))
    again = calls(("c2", "pay", {"to": "bob", "amount": 5}))
    model = Script(pay, again, "I can't tell")
    agent(model=model, tools=[bank.pay], checkpoints=client, session_id="s").generate("pay bob")
    first, second = model.last_answers
    assert "It is unknown" in first
    assert "TimeoutError: no answer" in first
    assert bank.paid == [("bob", 5)]  # the model asked for it again: it was not repeated
    assert "It is not repeated" in second
    [effect] = client.effects("s")
    assert effect.is_in_doubt


def test_a_repeatable_tool_that_failed_may_be_tried_again(client):
    bank = Bank(kind="idempotent")
    bank.fails_with = TimeoutError("no answer")
    model = Script(
        calls(("c1", "pay", {"to": "bob", "amount": 5})), calls(("c2", "pay", {"to": "bob", "amount": 5})), "ok"
    )
    agent(model=model, tools=[bank.pay], checkpoints=client, session_id="s").generate("pay bob")
    assert len(bank.paid) == 2
    for told in model.last_answers:
        assert "failed" in told
        assert "may have been carried out" in told  # the bank may have got it, and the answer was lost
        assert "not carried out" not in told


@pytest.mark.parametrize("checkpoints", ["client", "nothing"])
def test_a_tool_that_says_that_it_did_nothing_is_told_so(quick, checkpoints):
    for kind in ("read", "idempotent", "reversible", "irreversible"):
        for error in (EffectNotDoneError("closed"), LookupError("nobody of that name")):
            bank = Bank(kind=kind, not_done=(LookupError,))
            bank.fails_with = error
            model = Script(calls(("c1", "pay", {"to": "bob", "amount": 5})), "ok")
            agent(
                model=model, tools=[bank.pay], checkpoints=quick if checkpoints == "client" else None, sync=True
            ).generate("go")
            assert "failed, and was not carried out" in model.last_answers[0]
            assert str(error) in model.last_answers[0]


@pytest.mark.parametrize("checkpoints", ["client", "files"])
def test_an_idempotent_call_that_was_cut_off_is_told_as_one_that_may_be_repeated(quick, tmp_path, checkpoints):
    kept = quick if checkpoints == "client" else SyncFileCheckpoints(tmp_path)
    bank = Bank(kind="idempotent")
    bank.fails_with = SystemExit("killed")
    bot = agent(
        model=Script(calls(("c1", "pay", {"to": "bob", "amount": 5}))),
        tools=[bank.pay],
        checkpoints=kept,
        session_id="s",
    )
    with pytest.raises(SystemExit):
        bot.generate("pay bob")
    model = Script("well")
    agent(model=model, tools=[bank.pay], checkpoints=kept, session_id="s", on_open_call="error").generate()
    assert "may have been carried out" in model.last_answers[0]
    assert "Don't repeat" not in model.last_answers[0]


def test_after_a_rollback_the_same_payment_is_not_made_again(client):
    bank = Bank()
    bot = agent(
        model=Script(calls(("c1", "pay", {"to": "bob", "amount": 5, "note": "first"})), "paid"),
        tools=[bank.pay], checkpoints=client, session_id="s",
    )  # fmt: skip
    bot.generate("pay bob")
    start = client.timeline(session_id="s", limit=None)[-1].checkpoint_id
    client.rollback("s", to=start)
    model = Script(calls(("new id", "pay", {"to": "bob", "amount": 5, "note": "regenerated"})), "hm")
    agent(model=model, tools=[bank.pay], checkpoints=client, session_id="s").generate()
    assert bank.paid == [("bob", 5)]
    assert "carried out already" in model.last_answers[0]


def test_approval_waits_and_goes_on_in_the_next_life(store):
    bank = Bank()
    policy = StakesPolicy({"pay": "high"}, approvers="finance")
    pay = calls(("c1", "pay", {"to": "bob", "amount": 500}))

    def bot(*replies):
        return agent(
            model=Script(*replies), tools=[bank.pay, look], checkpoints=store.client(), session_id="s", policy=policy
        )

    with pytest.raises(ApprovalPendingError):
        bot(pay).generate("pay bob")
    with pytest.raises(ApprovalPendingError):
        bot().generate()
    client = store.client()
    [waiting] = client.approvals("s")
    assert steps(client) == ["prompt", "model"]  # waiting is no failure, and saves nothing
    assert (waiting.approvers, bank.paid) == ("finance", [])
    client.decide(waiting.approval_id, "modify", by="ann", arguments={"to": "bob", "amount": 50, "note": ""})
    turn = bot("paid 50").generate()
    assert (turn.text, bank.paid) == ("paid 50", [("bob", 50)])
    told = turn.state.messages[-2]["content"]
    assert told == '{"paid": 50} (it was approved with other arguments: {"amount": 50})'
    assert client.approval(waiting.approval_id).status == "used"


def test_a_rejection_is_told_to_the_model(client):
    bank = Bank(approve="finance")
    bot = agent(
        model=Script(calls(("c1", "pay", {"to": "bob", "amount": 5}))),
        tools=[bank.pay],
        checkpoints=client,
        session_id="s",
    )
    with pytest.raises(ApprovalPendingError) as waiting:
        bot.generate("pay bob")
    client.decide(waiting.value.approval_id, "reject", by="ann", note="bob has left")
    model = Script("I won't")
    turn = agent(model=model, tools=[bank.pay], checkpoints=client, session_id="s").generate()
    assert (turn.text, bank.paid) == ("I won't", [])
    assert "bob has left" in model.last_answers[0]


def test_a_result_that_can_not_be_kept_is_told_and_the_effect_is_done(client):
    class Receipt:
        def __str__(self):
            return "receipt 7"

    made = []

    @tool(kind="irreversible")
    def pay() -> object:
        made.append(1)
        return Receipt()

    @tool(kind="read")
    def peek() -> object:
        return Receipt()

    model = Script(calls(("c1", "pay", {}), ("c2", "peek", {})), "done")
    turn = agent(model=model, tools=[pay, peek], checkpoints=client, session_id="s").generate("go")
    assert (turn.text, made, model.last_answers) == ("done", [1], ['"receipt 7"', '"receipt 7"'])
    assert [effect.state for effect in client.effects("s")] == ["done"]


def test_its_checkpoints_know_what_its_tools_take(client):
    def made(*tools):
        scout = agent(model=Script(), tools=[look], sync=True).as_tool("scout", "Looks.")
        agent(model=Script("hello"), tools=[*tools, scout], checkpoints=client, session_id="s").generate("hi")
        return client.latest(session_id="s").agent_context["holdfast.run"]["tools"]

    first = made(Bank().pay, look)
    assert list(first) == ["pay", "look", "scout", "scout/look"]
    assert made(Bank().pay, look) == first
    assert made(Bank(kind="reversible").pay, look)["pay"] != first["pay"]
    described = tool(print, parameters={"type": "object", "properties": {"text": {"type": "string"}}})
    otherwise = tool(print, parameters={"type": "object", "properties": {"line": {"type": "string"}}})
    assert made(described)["print"] != made(otherwise)["print"]  # what the model sees counts as well
    made(Bank().pay, look)
    with client.run("s", agent_id="agent") as run:
        run.tool(look.fn, kind="read")  # the same tool of a run
        run.tool(lambda to: to, name="pay", identity=("to", "amount"))
        assert run.changed_tools == ("pay", "scout", "scout/look")


# -- open calls --------------------------------------------------------------------------------------------------------


def cut_off(client, *, started):
    """A session that was cut off with an open payment: before it was started, or in the middle of it."""
    bank = Bank()
    state = AgentState.initial().with_messages(
        [{"role": "user", "content": "pay"}, calls(("c1", "pay", {"to": "bob", "amount": 5}))]
    )
    if started:
        bank.fails_with = SystemExit("killed")
        bot = agent(model=Script(state.messages[1]), tools=[bank.pay], checkpoints=client, session_id="s")
        with pytest.raises(SystemExit):
            bot.generate("pay")
        bank.fails_with = None
    else:
        client.save(agent_id="agent", session_id="s", execution_state=state.to_json())
    return bank


@pytest.mark.parametrize("policy", ["execute", "error"])
@pytest.mark.parametrize("started", [False, True], ids=["not started", "in the middle"])
def test_an_open_call_is_closed_with_the_truth(client, policy, started):
    bank = cut_off(client, started=started)
    before = list(bank.paid)
    model = Script("well")
    turn = agent(model=model, tools=[bank.pay], checkpoints=client, session_id="s", on_open_call=policy).generate(
        "what happened?"
    )
    assert [message["role"] for message in turn.state.messages] == ["user", "assistant", "tool", "user", "assistant"]
    [answer] = model.last_answers
    if started:
        assert "It is unknown" in answer
        assert bank.paid == before == [("bob", 5)]
    elif policy == "execute":
        assert (answer, bank.paid) == ('{"paid": 5}', [("bob", 5)])
    else:
        assert "was not carried out" in answer
        assert bank.paid == []


@pytest.mark.parametrize("started", [False, True], ids=["not started", "in the middle"])
def test_an_open_call_raises_if_it_is_to(client, started):
    bank = cut_off(client, started=started)
    bot = agent(model=Script("x"), tools=[bank.pay], checkpoints=client, session_id="s", on_open_call="raise")
    with pytest.raises(OpenToolCallError, match="unknown" if started else "not started"):
        bot.generate("what happened?")


def test_an_open_call_in_the_middle_is_answered_where_it_belongs(client):
    state = AgentState.initial().with_messages(
        [{"role": "user", "content": "x?"}, LOOK, {"role": "user", "content": "hello?"}]
    )
    model = Script("7")
    turn = agent(model=model, tools=[look], checkpoints=client, session_id="s").generate("anybody?", state)
    roles = [message["role"] for message in turn.state.messages]
    assert roles == ["user", "assistant", "tool", "user", "user", "assistant"]
