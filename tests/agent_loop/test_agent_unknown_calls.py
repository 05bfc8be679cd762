"""Calls of the reference loop of which nobody knows how they ended: with a ledger, in a plain store, and in none."""

from __future__ import annotations

import asyncio

import pytest
from agent_models import Script, calls
from agent_tools import Bank, look

from holdfast import NOT_DONE, Done, FileCheckpoints, SyncFileCheckpoints, UsageError, agent, tool

PAY = {"to": "bob", "amount": 5}


def paying(id_="c1", **arguments):
    return calls((id_, "pay", {**PAY, **arguments}))


@pytest.fixture(params=["client", "files", "nothing"])
def checkpoints(request, quick, tmp_path):
    return {"client": quick, "files": SyncFileCheckpoints(tmp_path), "nothing": None}[request.param]


def bot_of(model, tools, checkpoints, **options):
    named = {} if checkpoints is None else {"session_id": "s"}
    return agent(model=model, tools=tools, checkpoints=checkpoints, sync=True, **named, **options)


class Counter:
    """A tool that takes a key, and fails as long as it is to."""

    def __init__(self, **options):
        self.keys = []
        self.fails_with = None

        @tool(**options)
        def pay(to: str, amount: int, *, idempotency_key: str) -> str:
            self.keys.append(idempotency_key)
            if self.fails_with is not None:
                raise self.fails_with
            return "paid"

        self.pay = pay


# -- equal calls -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["reversible", "irreversible"])
def test_what_raised_is_not_made_again_when_the_model_asks_for_the_same(checkpoints, kind):
    bank = Bank(kind=kind)
    bank.fails_with = TimeoutError("no answer")
    model = Script(paying("c1"), paying("c2", note="once more"), "I can't tell")
    bot_of(model, [bank.pay], checkpoints).generate("pay bob")
    assert bank.paid == [("bob", 5)]
    first, second = model.last_answers
    assert "TimeoutError: no answer" in first
    for told in (first, second):
        assert "It is unknown whether this call was carried out" in told


def test_nor_is_it_in_the_next_life(tmp_path):
    bank = Bank()
    bank.fails_with = TimeoutError("no answer")
    bot_of(Script(paying(), "hm"), [bank.pay], SyncFileCheckpoints(tmp_path)).generate("pay bob")
    bank.fails_with = None
    model = Script(paying("c2"), paying("c3", amount=7), "done")
    turn = bot_of(model, [bank.pay], SyncFileCheckpoints(tmp_path)).generate("and?")
    assert bank.paid == [("bob", 5), ("bob", 7)]  # another payment is another one
    assert "this one was not made" in model.last_answers[1]
    # Somebody has looked: it was not paid.
    model = Script(paying("c4"), "done")
    known = turn.state.without_metadata("calls_in_doubt")
    bot_of(model, [bank.pay], SyncFileCheckpoints(tmp_path)).generate("try again", known)
    assert bank.paid == [("bob", 5), ("bob", 7), ("bob", 5)]


@pytest.mark.parametrize("policy", ["execute", "error"])
def test_what_was_cut_off_is_not_made_again_by_an_equal_call(tmp_path, policy):
    bank = Bank()
    bank.fails_with = SystemExit("killed")
    with pytest.raises(SystemExit):
        bot_of(Script(paying()), [bank.pay], SyncFileCheckpoints(tmp_path)).generate("pay bob")
    bank.fails_with = None
    model = Script(paying("c2"), "hm")
    bot_of(model, [bank.pay], SyncFileCheckpoints(tmp_path), on_open_call=policy).generate()
    assert bank.paid == [("bob", 5)]
    assert ["It is unknown" in told for told in model.last_answers] == [True, True]


def test_what_has_ended_may_be_asked_for_again(checkpoints):
    bank = Bank(not_done=(LookupError,))
    bank.fails_with = LookupError("nobody of that name")
    model = Script(paying("c1"), paying("c2"), "no")
    bot = bot_of(model, [bank.pay], checkpoints)
    state = bot.generate("pay bob").state
    assert len(bank.paid) == 2
    bank.fails_with = None
    model.replies = [paying("c3"), paying("c4"), "twice"]
    turn = bot.generate("pay him twice", state)
    assert len(bank.paid) == 4
    assert model.last_answers[-2:] == ['{"paid": 5}'] * 2
    assert "calls_in_doubt" not in turn.state.metadata


def test_a_call_in_doubt_leaves_the_calls_for_others_alone(quick):
    bank = Bank(kind="irreversible")
    bank.fails_with = SystemExit("killed")
    with pytest.raises(SystemExit):
        bot_of(Script(paying("c1")), [bank.pay], quick).generate("pay all")
    bank.fails_with = None
    model = Script(paying("c2", to="ann"), paying("c3", to="eve"), paying("c4"), "done")
    bot_of(model, [bank.pay], quick).generate()
    assert [to for to, _ in bank.paid] == ["bob", "ann", "eve"]
    assert ["It is unknown" in told for told in model.last_answers] == [True, False, False, True]


def test_an_equal_call_in_the_next_life_is_another_one_if_the_first_has_ended(quick):
    bank = Bank(kind="irreversible")
    for number in (1, 2):
        bot_of(Script(paying(f"c{number}"), "done"), [bank.pay], quick).generate("pay bob")
        assert len(bank.paid) == number


def test_what_the_tool_of_a_sub_agent_left_in_doubt_is_not_made_again_for_another(checkpoints):
    bank = Bank()
    bank.fails_with = TimeoutError("no answer")
    inner = Script(paying("i1"), "I can't tell", paying("i1"), "still not")
    payer = agent(model=inner, tools=[bank.pay], sync=True).as_tool("payer", "Pays.")
    ask = [calls((id_, "payer", {"prompt": "pay bob"})) for id_ in ("c1", "c2")]
    bot_of(Script(*ask, "hm"), [payer], checkpoints).generate("go")
    assert bank.paid == [("bob", 5)]
    assert "It is unknown" in inner.last_answers[0]


def test_a_sub_agent_that_failed_after_it_has_paid_is_not_told_as_one_that_did_nothing(checkpoints):
    bank = Bank()
    look_first = calls(("i0", "look", {"what": "x"}))
    inner = Script(look_first, ConnectionError("gone"), paying("i1"), ConnectionError("gone again"))
    payer = agent(model=inner, tools=[bank.pay, look], sync=True).as_tool("payer", "Pays.")
    ask = [calls((id_, "payer", {"prompt": "pay bob"})) for id_ in ("c1", "c2")]
    model = Script(*ask, "hm")
    turn = bot_of(model, [payer], checkpoints).generate("go")
    assert bank.paid == [("bob", 5)]
    only_looked, has_paid = model.last_answers
    assert "failed, and was not carried out. (ConnectionError: gone)" in only_looked
    assert "It is unknown" in has_paid
    assert [trace.success for trace in turn.state.subagent_traces] == [False, False]


def test_what_was_cancelled_is_not_made_again(tmp_path):
    async def story():
        begun, paid = asyncio.Event(), []

        @tool(kind="irreversible")
        async def pay(to: str, amount: int) -> None:
            paid.append(to)
            begun.set()
            await asyncio.Event().wait()

        def bot(*replies):
            return agent(model=Script(*replies), tools=[pay], checkpoints=FileCheckpoints(tmp_path), session_id="s")

        turn = asyncio.create_task(bot(paying()).generate("pay bob"))
        await begun.wait()
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        await asyncio.wait_for(bot(paying("c2"), "hm").generate(), 10)
        assert paid == ["bob"]

    asyncio.run(story())


# -- the key for the other side ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["idempotent", "reversible", "irreversible"])
def test_a_tool_is_given_a_key_and_each_call_its_own(checkpoints, kind):
    counter = Counter(kind=kind)
    model = Script(calls(("c1", "pay", PAY), ("c2", "pay", PAY)), calls(("c1", "pay", PAY)), "done")
    bot_of(model, [counter.pay], checkpoints).generate("pay bob three times")
    assert model.last_answers == ["paid"] * 3
    assert len(set(counter.keys)) == 3
    assert all(key.startswith("hf1_") for key in counter.keys)


def test_what_is_repeated_because_nobody_knows_has_the_same_key(checkpoints):
    counter = Counter(kind="idempotent")
    counter.fails_with = TimeoutError("no answer")
    bot_of(Script(paying("c1"), paying("c2"), "hm"), [counter.pay], checkpoints).generate("pay bob")
    assert counter.keys == [counter.keys[0]] * 2


def test_once_it_is_known_the_next_one_has_another_key():
    counter = Counter(kind="idempotent")
    counter.fails_with = TimeoutError("no answer")
    model = Script(paying("c1"), "hm", paying("c2"), paying("c3"), "done")
    bot = bot_of(model, [counter.pay], None)
    state = bot.generate("pay bob").state
    counter.fails_with = None
    bot.generate("try again, and pay him another five", state)
    failed, again, another = counter.keys
    assert failed == again != another


def test_a_call_that_was_cut_off_is_repeated_with_the_same_key(tmp_path):
    counter = Counter(kind="idempotent")
    counter.fails_with = SystemExit("killed")
    with pytest.raises(SystemExit):
        bot_of(Script(paying()), [counter.pay], SyncFileCheckpoints(tmp_path)).generate("pay bob")
    counter.fails_with = None
    model = Script("done")
    bot_of(model, [counter.pay], SyncFileCheckpoints(tmp_path)).generate()
    assert model.last_answers == ["paid"]
    assert len(counter.keys) == 2
    assert len(set(counter.keys)) == 1


def test_a_tool_that_only_reads_and_needs_a_key_is_refused():
    with pytest.raises(UsageError, match="only what changes something"):
        Counter(kind="read")


def test_of_two_equal_calls_the_doubt_about_one_does_not_block_the_other(quick):
    counter = Counter(kind="irreversible")
    bot = bot_of(Script(calls(("c1", "pay", PAY), ("c2", "pay", PAY))), [counter.pay], quick)
    counter.fails_with = SystemExit("killed")
    with pytest.raises(SystemExit):
        bot.generate("pay bob twice")
    for event in bot.stream():
        if event.kind == "tool_result":
            break  # the first is answered: its outcome is unknown
    [first] = quick.effects("s", in_doubt=True)
    quick.resolve_effect(first.effect_id, "not_done", by="ann")
    with pytest.raises(SystemExit):
        bot.generate()  # killed in the second
    counter.fails_with = None
    model = Script(calls(("c3", "pay", PAY)), "done")
    bot_of(model, [counter.pay], quick).generate()
    assert model.last_answers[-1] == "paid"
    first_key, second_key, again = counter.keys
    assert again == first_key != second_key
    assert [one.provider_key for one in quick.effects("s", in_doubt=True)] == [second_key]


# -- tools that were changed since -------------------------------------------------------------------------------------


def transfer(to: str, amount: int) -> str:
    raise AssertionError("it is called")


def pay_otherwise(payee: str) -> str:
    raise AssertionError("it is called")


@pytest.mark.parametrize("kind", [None, "irreversible"])
@pytest.mark.parametrize("on_open_call", ["execute", "error"])
@pytest.mark.parametrize("now", [transfer, tool(pay_otherwise, name="pay")], ids=["gone", "other parameters"])
@pytest.mark.parametrize("kept", ["client", "files"])
def test_a_call_that_was_cut_off_is_in_doubt_though_its_tool_is_not_there_any_more(
    quick, tmp_path, kind, on_open_call, now, kept
):
    checkpoints = quick if kept == "client" else SyncFileCheckpoints(tmp_path)
    counter = Counter(kind=kind)
    counter.fails_with = SystemExit("killed")
    asked = calls(("c1", "pay", PAY), ("c2", "pay", {**PAY, "to": "ann"}))
    with pytest.raises(SystemExit):
        bot_of(Script(asked), [counter.pay], checkpoints).generate("pay both")
    model = Script("done")
    bot_of(model, [now], checkpoints, on_open_call=on_open_call).generate()
    started, not_started = model.last_answers
    assert "It is unknown whether this call was carried out" in started
    assert "was not carried out" in not_started
    for told in model.last_answers:
        assert "there is no tool 'pay'" in told or "it can't be called so" in told
    assert len(counter.keys) == 1


def test_a_sub_agent_that_was_cut_off_is_in_doubt_though_it_is_not_there_any_more(quick):
    counter = Counter(kind="irreversible")
    counter.fails_with = SystemExit("killed")
    payer = agent(model=Script(paying()), tools=[counter.pay], sync=True).as_tool("payer", "Pays.")
    with pytest.raises(SystemExit):
        bot_of(Script(calls(("c1", "payer", {"prompt": "pay bob"}))), [payer], quick).generate("pay bob")
    model = Script("done")
    bot_of(model, [look], quick).generate()
    assert "It is unknown whether this call was carried out" in model.last_answers[0]


# -- probes ------------------------------------------------------------------------------------------------------------


class Probed(Counter):
    """With a probe that answers, or raises, what it is to."""

    def __init__(self, **options):
        self.probed = []
        self.answer = None

        def probe(to, amount, idempotency_key):
            self.probed.append(idempotency_key)
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

        super().__init__(probe=probe, **options)


@pytest.mark.parametrize("kind", ["reversible", "irreversible"])
@pytest.mark.parametrize("is_cut_off", [True, False], ids=["cut off", "raised"])
@pytest.mark.parametrize(
    "answer", [Done("receipt 7"), NOT_DONE, OSError("closed")], ids=["done", "not done", "no answer"]
)
def test_a_probe_is_asked_what_became_of_it(quick, tmp_path, kind, is_cut_off, answer):
    for checkpoints in (quick, SyncFileCheckpoints(tmp_path)):
        counter = Probed(kind=kind)
        model = Script(paying("c1"), paying("c2"), "done")
        bot = bot_of(model, [counter.pay], checkpoints)
        counter.answer = answer
        if is_cut_off:
            counter.fails_with = SystemExit("killed")
            with pytest.raises(SystemExit):
                bot.generate("pay bob")
            counter.fails_with = None
            model.replies = ["done"]
            bot.generate()
        else:
            counter.fails_with = TimeoutError("no answer")
            bot.generate("pay bob")
        told = model.last_answers[-1]
        assert counter.probed == [counter.keys[0]]
        if answer is NOT_DONE:
            assert counter.keys == [counter.keys[0]] * 2  # carried out now, with the same key
        else:
            assert len(counter.keys) == 1
            assert told.startswith(answer.result) if isinstance(answer, Done) else "OSError('closed')" in told
            assert ("nothing was done again" in told) == (isinstance(answer, Done) and not is_cut_off)


def test_a_probe_that_does_not_take_the_arguments_is_refused_before_anything_is_done(checkpoints):
    bank = Bank(probe=lambda payee: payee)
    with pytest.raises(UsageError, match="can't be called so"):
        bot_of(Script(paying()), [bank.pay], checkpoints).generate("pay bob")
    assert bank.paid == []
