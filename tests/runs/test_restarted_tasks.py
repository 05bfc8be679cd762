"""Tasks, sub-agents and steps that start again find what they have done already."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from bank import Bank, pay
from stores import Store

from holdfast import EffectBlockedError, EffectNotDoneError, Retry, SyncClient, SyncRun


class Died(Exception):  # noqa: N818 - the program dies of it
    pass


def test_a_task_that_is_given_again_in_the_same_life(client: SyncClient, bank: Bank):
    with client.run("s") as run:
        tasks = run.tasks("orders", ["bob", "ann"])
        for task in tasks:
            pay(run, bank, to=task.id)
            break
        for task in tasks:
            pay(run, bank, to=task.id)
        for task in run.tasks("more", ["eve"]):
            pay(run, bank, to=task.id)
    assert bank.paid == [("bob", 500), ("ann", 500), ("eve", 500)]


def test_a_task_whose_loop_is_begun_anew_after_an_error(client: SyncClient, bank: Bank):
    failures = 2

    def note(id_: str) -> str:
        nonlocal failures
        if failures:
            failures -= 1
            raise OSError("the disk is full")
        return f"noted {id_}"

    with client.run("s") as run:
        for _ in range(3):
            try:
                for task in run.tasks("orders", ["bob"]):
                    pay(run, bank, to=task.id)
                    assert run.step("note", note, task.id) == "noted bob"  # called again, not raised again
            except OSError:
                continue
    assert bank.paid == [("bob", 500)]
    assert failures == 0


@pytest.mark.parametrize("in_the_same_life", [True, False])
def test_a_failed_task_that_is_tried_again(client: SyncClient, bank: Bank, in_the_same_life: bool):
    called = []

    def ship(id_: str) -> str:
        called.append(id_)
        if len(called) == 1:
            raise OSError("no carrier")
        return "shipped"

    def work(run: SyncRun) -> None:
        for task in run.tasks("orders", ["bob"], retry_failed=True):
            pay(run, bank, to=task.id)
            try:
                assert run.step("ship", ship, task.id) == "shipped"
            except OSError as error:
                task.fail(str(error))

    with client.run("s") as run:
        work(run)
        if in_the_same_life:
            work(run)
    with client.run("s") as run:
        work(run)
    assert bank.paid == [("bob", 500)]
    assert called == ["bob", "bob"]


def test_inside_of_a_sub_agent_that_is_over_what_was_made_up_anew_is_suspect(client: SyncClient, bank: Bank):
    def program(amount: int) -> None:
        with client.run("s") as run, run.subagent("payer") as payer:
            pay(payer, bank, amount=amount)

    program(500)
    program(500)
    with pytest.raises(EffectBlockedError, match="has other arguments"):
        program(501)
    assert bank.paid == [("bob", 500)]


def test_a_sub_agent_that_was_passed_over_is_suspected_of_nothing(quick: SyncClient, bank: Bank):
    def program(*, dies: bool) -> None:
        with quick.run("s") as run:
            for month in ("may", "june"):
                payer = run.subagent("payer", subagent_id=month)
                if not payer.is_over:
                    with payer:
                        pay(payer, bank)
                if dies:
                    raise Died

    with pytest.raises(Died):
        program(dies=True)
    program(dies=False)
    assert bank.paid == [("bob", 500)] * 2


@pytest.mark.parametrize("subagent_id", ["p1", None])
def test_a_sub_agent_that_failed_and_is_begun_again(client: SyncClient, bank: Bank, subagent_id: str | None):
    with client.run("s") as run:
        for is_last in (False, True):
            try:
                with run.subagent("payer", subagent_id=subagent_id) as payer:
                    pay(payer, bank)
                    if not is_last:
                        raise OSError("after the payment")
            except (OSError, EffectBlockedError) as error:
                assert isinstance(error, EffectBlockedError) == is_last  # without an id it is another one, and suspect
    assert bank.paid == [("bob", 500)]


def test_a_sub_agent_goes_on_where_it_was_left(quick: SyncClient):
    def program() -> list[object]:
        with quick.run("s") as run:
            found = []
            for word in ("one", "two"):
                with run.subagent("counter", subagent_id="c") as counter:
                    found.append(counter.step("say", lambda word=word: word))
            return found

    assert program() == program() == ["one", "two"]


def test_a_sub_agent_from_outside_that_is_asked_in_a_step_that_is_tried_again(client: SyncClient, bank: Bank):
    tries = 0

    def body(payer: Any) -> object:
        nonlocal tries
        tries += 1
        receipt = pay(payer, bank)
        if tries == 1:
            raise OSError("after the payment")
        return receipt

    with client.run("s") as run, run.subagent("payer") as payer:
        assert run.step("pay and log", body, payer, retry=Retry(attempts=2, seconds=0)) == "receipt 1"
    assert bank.paid == [("bob", 500)]
    assert [call.name for call in run.traces[0].tool_calls] == ["pay"]


def test_what_threads_of_a_step_have_done_is_not_done_again_when_it_is_tried_again(quick: SyncClient, bank: Bank):
    def body(run: SyncRun) -> None:
        with ThreadPoolExecutor(1) as threads:
            threads.submit(pay, run, bank).result()
        raise OSError("after the payment")

    with quick.run("s") as run, pytest.raises(EffectBlockedError, match="tried again, has the same arguments"):
        run.step("pay and log", body, run, retry=Retry(attempts=2, seconds=0, on=(OSError,)))
    assert bank.paid == [("bob", 500)]


@pytest.mark.parametrize("inner", ["step", "effect"])
def test_what_failed_inside_of_a_step_is_called_again_when_that_is_tried_again(client: SyncClient, inner: str):
    calls = 0

    def flaky() -> str:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise EffectNotDoneError("not now")
        return "done"

    with client.run("s") as run:
        outer = run.step("outer", lambda: getattr(run, inner)("inner", flaky), retry=Retry(attempts=3, seconds=0))
    assert (outer, calls) == ("done", 3)


def test_what_a_finished_step_did_inside_of_one_that_is_tried_again_is_suspected_of_nothing(
    quick: SyncClient, bank: Bank
):
    tries = 0

    def body(run: SyncRun) -> None:
        nonlocal tries
        tries += 1
        run.step("pay", lambda: pay(run, bank))
        if tries == 1:
            raise OSError("after the payment")

    with quick.run("s") as run:
        run.step("pay and log", body, run, retry=Retry(attempts=2, seconds=0))
        pay(run, bank)
    assert bank.paid == [("bob", 500)] * 2


def test_after_one_that_was_certainly_not_done_another_amount_is_suspect_all_the_same(quick: SyncClient, bank: Bank):
    def refused(to: str, amount: int, ref: object = None) -> None:
        raise EffectNotDoneError("no money")

    with quick.run("s") as run:
        before = run.save("before")
        with pytest.raises(EffectNotDoneError):
            run.effect("pay", refused, "bob", 500)
        pay(run, bank, amount=501)
    quick.rollback("s", before)
    with quick.run("s") as run, pytest.raises(EffectBlockedError):
        pay(run, bank)
    assert bank.paid == [("bob", 501)]


def test_two_calls_with_keys_are_two_though_one_has_failed(client: SyncClient):
    keys = []

    def send(to: str, *, idempotency_key: str) -> str:
        keys.append(idempotency_key)
        if len(keys) == 1:
            raise TimeoutError("no answer")
        return "sent"

    with client.run("s") as run:
        with pytest.raises(TimeoutError):
            run.effect("send", send, "all", kind="idempotent", key="monday")
        assert run.effect("send", send, "all", kind="idempotent", key="tuesday") == "sent"
    assert len(set(keys)) == 2


def test_an_approval_with_other_arguments_answers_one_call_only(client: SyncClient):
    paid = []

    def pay_out(to: str, amount: int) -> int:
        paid.append(amount)
        return amount

    def program() -> None:
        with client.run("s") as run:
            for _ in run.tasks("orders", ["first", "second"]):
                run.effect("pay", pay_out, "bob", 500, kind="reversible", approve="finance")

    for amount in (450, 460):
        with pytest.raises(Exception, match="waits for approval"):
            program()
        [approval] = client.approvals()
        client.decide(approval.approval_id, "modify", by="ann", arguments={"to": "bob", "amount": amount})
    program()
    assert paid == [450, 460]


class TestEndedByALimit:
    def test_before_it_has_begun(self, store: Store, bank: Bank):
        async def program() -> None:
            async with store.async_client() as client:
                async with client.run("s") as run:
                    await run.effect("pay", bank.pay, "bob", 500)
                    assert await run.step("ask", lambda: 1) == 1
                async with client.run("s") as run:
                    with pytest.raises(TimeoutError):
                        await asyncio.wait_for(run.effect("pay", bank.pay, "bob", 500), 0)
                    with pytest.raises(TimeoutError):
                        await asyncio.wait_for(run.step("ask", lambda: 2), 0)
                    with pytest.raises(EffectBlockedError, match="has other arguments"):
                        await run.effect("pay", bank.pay, "bob", 501)  # still, nobody has asked for the other one
                    assert await run.effect("pay", bank.pay, "bob", 500) == "receipt 1"
                    assert await run.step("ask", lambda: 2) == 1

        asyncio.run(program())
        assert len(bank.paid) == 1

    def test_steps_of_one_name_keep_their_order(self, store: Store):
        is_slow = True

        async def fetch(page: str) -> str:
            nonlocal is_slow
            if is_slow:
                is_slow = False
                await asyncio.Event().wait()
            return f"page {page}"

        async def program(client: Any) -> list[str]:
            async with client.run("s") as run:
                found = []
                for page in ("a", "b"):
                    while True:
                        try:
                            found.append(await asyncio.wait_for(run.step("fetch", fetch, page), 0.2))
                            break
                        except TimeoutError:
                            continue
                return found

        async def both_lives() -> None:
            async with store.async_client() as client:
                assert await program(client) == ["page a", "page b"]
                assert await program(client) == ["page a", "page b"]

        asyncio.run(both_lives())

    def test_while_its_result_is_saved(self, store: Store, bank: Bank):
        """What was committed all the same is not committed again, and the run goes on."""

        async def program() -> None:
            async with store.async_client() as client, client.run("s") as run:
                await run.step("first", lambda: 1)
                await run.step("second", lambda: 2)
                saving = asyncio.Event()
                commit = run._core._store

                async def told(*args: Any) -> Any:
                    saving.set()
                    return await commit(*args)

                run._core._store = told
                paying = asyncio.ensure_future(run.effect("pay", bank.pay, "bob", 500))
                await saving.wait()
                await asyncio.sleep(0)
                paying.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await paying
                run._core._store = commit
                assert await run.effect("pay", bank.pay, "bob", 500) == "receipt 1"
                assert await run.step("third", lambda: 3) == 3
                await run.effect("pay", bank.pay, "ann", 500)
                assert {effect.state for effect in await client.effects("s")} == {"done"}

        asyncio.run(program())
        assert bank.paid == [("bob", 500), ("ann", 500)]


def test_many_calls_with_keys_cost_no_more_than_they_are(quick: SyncClient, monkeypatch: pytest.MonkeyPatch):
    from holdfast.format.rows import ledger

    digests = 0
    digest = ledger.digest

    def counted(*args: Any) -> bytes:
        nonlocal digests
        digests += 1
        return digest(*args)

    def program(start: int) -> None:
        with quick.run("s") as run:
            for n in range(start, start + 30):
                run.effect("send", lambda n: n, n, key=f"c{n}")

    program(0)
    monkeypatch.setattr(ledger, "digest", counted)
    program(30)
    assert digests <= 30 * 4
