"""A call that the program makes again, in this life or the next, is never another effect by accident."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from bank import Bank, pay
from stores import Store

from holdfast import (
    Client,
    EffectBlockedError,
    EffectUnknownError,
    NewerStateError,
    Retry,
    StoreError,
    SyncClient,
    SyncRun,
    UnsupportedValueError,
)
from holdfast.backends.url import open_backend


class Died(Exception):  # noqa: N818 - the program dies of it
    pass


def lives(client: SyncClient, *programs: Callable[[SyncRun], Any]) -> Any:
    """Each program dies after its last call, but the last one, whose result is given."""
    for program in programs[:-1]:
        with pytest.raises(Died), client.run("s", agent_id="buyer") as run:
            program(run)
            raise Died
    with client.run("s", agent_id="buyer") as run:
        return programs[-1](run)


class TestInTheSameLife:
    def test_a_step_that_is_tried_again_finds_the_effects_it_has_carried_out(self, client: SyncClient, bank: Bank):
        tries = 0

        def body(run: SyncRun) -> str:
            nonlocal tries
            tries += 1
            receipt = pay(run, bank)
            if tries < 3:
                raise OSError("after the payment")
            return f"{receipt}, logged"

        with client.run("s") as run:
            assert run.step("pay and log", body, run, retry=Retry(attempts=3, seconds=0)) == "receipt 1, logged"
        assert tries == 3
        assert bank.paid == [("bob", 500)]

    def test_a_try_that_asks_for_something_else_is_suspect(self, quick: SyncClient, bank: Bank):
        amounts = iter((500, 501))

        def body(run: SyncRun) -> None:
            pay(run, bank, amount=next(amounts))
            raise OSError("after the payment")

        with quick.run("s") as run, pytest.raises(EffectBlockedError, match="tried again, has other arguments"):
            run.step("pay and log", body, run, retry=Retry(attempts=2, seconds=0, on=(OSError,)))
        assert bank.paid == [("bob", 500)]

    def test_a_program_that_calls_a_failed_step_again_does_not_pay_again(self, quick: SyncClient, bank: Bank):
        def body(run: SyncRun) -> None:
            pay(run, bank)
            raise OSError("after the payment")

        with quick.run("s") as run:
            with pytest.raises(OSError, match="after the payment"):
                run.step("pay and log", body, run)
            with pytest.raises(EffectBlockedError, match="has the same arguments"):
                run.step("pay and log", body, run)
        assert bank.paid == [("bob", 500)]

    @pytest.mark.parametrize("kind", ["reversible", "irreversible"])
    def test_an_effect_that_was_interrupted_is_in_doubt_there_and_then(self, client: SyncClient, bank: Bank, kind: str):
        bank.dies = True
        with client.run("s") as run:
            with pytest.raises(KeyboardInterrupt):
                pay(run, bank, kind=kind)
            for _ in range(2):
                with pytest.raises(EffectUnknownError):
                    pay(run, bank, kind=kind)
        assert len(bank.paid) == 1

    def test_another_call_after_an_interrupted_one_is_suspect(self, quick: SyncClient, bank: Bank):
        with quick.run("s") as run:
            pay(run, bank, to="ann")
            bank.dies = True
            with pytest.raises(KeyboardInterrupt):
                pay(run, bank)
            with pytest.raises(EffectBlockedError, match="there was no rollback"):
                pay(run, bank, amount=501)
        assert bank.paid == [("ann", 500), ("bob", 500)]

    def test_an_effect_that_took_too_long_is_not_begun_again(self, store: Store):
        begun = []
        is_begun = asyncio.Event()

        async def slowly(to: str) -> None:
            begun.append(to)
            is_begun.set()
            await asyncio.Event().wait()

        async def program() -> None:
            async with store.async_client() as client, client.run("s") as run:
                paying = asyncio.ensure_future(run.effect("pay", slowly, "bob"))
                await asyncio.wait_for(is_begun.wait(), 60)
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(paying, 0.05)
                with pytest.raises(EffectUnknownError):
                    await run.effect("pay", slowly, "bob")

        asyncio.run(program())
        assert begun == ["bob"]

    def test_a_repeatable_effect_that_failed_is_tried_again_with_the_same_key(self, client: SyncClient):
        keys: list[str] = []
        states: list[str] = []

        def put(to: str, *, idempotency_key: str) -> str:
            keys.append(idempotency_key)
            if len(keys) < 3:
                raise TimeoutError("no answer")
            return "put"

        def program(run: SyncRun) -> object:
            for _ in range(3):
                try:
                    return run.effect("put", put, "bob", kind="idempotent")
                except TimeoutError:
                    [effect] = client.effects("s")
                    states.append(effect.state)
            raise AssertionError("the third time it works")

        assert lives(client, program, program) == "put"
        assert len(keys) == 3
        assert len(set(keys)) == 1
        assert states == ["unknown", "unknown", "done", "done"]  # the next life takes the same way, and calls nothing

    def test_a_result_that_could_not_be_saved_is_saved_when_it_is_asked_for_again(self, quick: SyncClient, bank: Bank):
        with quick.run("s") as run:
            run.state["what"] = object()
            with pytest.raises(UnsupportedValueError):
                pay(run, bank)
            del run.state["what"]
            assert pay(run, bank) == "receipt 1"
            [effect] = quick.effects("s")
            assert effect.state == "done"
        assert len(bank.paid) == 1

    def test_a_store_that_fails_once_makes_no_second_payment(self, bank: Bank):
        class Failing:
            def __init__(self) -> None:
                self.inner = open_backend("memory://")
                self.fails = False

            def commit_all(self, commits: Any) -> Any:
                if self.fails:
                    self.fails = False
                    raise StoreError("connection lost")
                return self.inner.commit_all(commits)

            def __getattr__(self, name: str) -> Any:
                return getattr(self.inner, name)

        backend = Failing()

        def failing(to: str, amount: int, *, idempotency_key: str) -> str:
            backend.fails = not bank.paid
            return bank.pay(to, amount, idempotency_key=idempotency_key)

        with SyncClient(backend) as client, client.run("s") as run:  # type: ignore[arg-type]  # it has the verbs
            with pytest.raises(StoreError, match="connection lost"):
                run.effect("pay", failing, "bob", 500)
            assert run.effect("pay", failing, "bob", 500) == "receipt 1"
        assert len(bank.paid) == 1


class TestInTheNextLife:
    @pytest.mark.parametrize("again", [{"amount": 501}, {"to": "bobby"}])
    def test_what_was_made_up_anew_is_not_carried_out_beside_what_it_was_made_from(
        self, client: SyncClient, bank: Bank, again: dict[str, Any]
    ):
        with pytest.raises(EffectBlockedError, match="since it was resumed") as blocked:
            lives(client, lambda run: pay(run, bank), lambda run: pay(run, bank, **again))
        assert bank.paid == [("bob", 500)]
        [effect] = blocked.value.effects
        client.resolve_effect(effect.effect_id, "acknowledge", by="ann")
        lives(client, lambda run: pay(run, bank, **again))
        assert len(bank.paid) == 2

    def test_with_a_new_reference_neither(self, client: SyncClient, bank: Bank):
        def program(run: SyncRun) -> object:
            return run.effect("pay", bank.pay, "bob", 500, str(uuid.uuid4()))

        with pytest.raises(EffectBlockedError, match="differs only in what is new in every call"):
            lives(client, program, program)
        assert len(bank.paid) == 1

    def test_the_same_key_is_the_same_effect_whatever_the_arguments_are(self, client: SyncClient, bank: Bank):
        again = lives(client, lambda run: pay(run, bank, key="c1"), lambda run: pay(run, bank, amount=501, key="c1"))
        assert (again, bank.paid) == ("receipt 1", [("bob", 500)])

    @pytest.mark.parametrize(
        "elsewhere",
        [
            lambda run, bank: pay(run, bank, key="c1"),
            lambda run, bank: pay(run.subagent("payer"), bank),
            lambda run, bank: run.step("month", lambda: pay(run, bank)),
        ],
        ids=["with a key", "by a sub-agent", "inside of a step"],
    )
    def test_the_same_call_from_elsewhere_in_the_program_is_suspect(
        self, quick: SyncClient, bank: Bank, elsewhere: Callable[[Any, Bank], object]
    ):
        with pytest.raises(EffectBlockedError, match="has the same arguments"):
            lives(quick, lambda run: pay(run, bank), lambda run: elsewhere(run, bank))
        assert len(bank.paid) == 1

    def test_the_same_call_by_another_agent_of_the_session_is_suspect(self, quick: SyncClient, bank: Bank):
        for agent, is_blocked in (("buyer", False), ("buyer, renamed", True)):
            with quick.run("s", agent_id=agent) as run:
                if is_blocked:
                    with pytest.raises(EffectBlockedError, match="has the same arguments"):
                        pay(run, bank)
                else:
                    pay(run, bank)
        assert len(bank.paid) == 1

    def test_what_comes_behind_what_was_asked_for_again_is_free(self, client: SyncClient, bank: Bank):
        lives(
            client,
            lambda run: [pay(run, bank), pay(run, bank, to="ann")],
            lambda run: [pay(run, bank, to="ann"), pay(run, bank), pay(run, bank, to="eve"), pay(run, bank)],
        )
        assert bank.paid == [("bob", 500), ("ann", 500), ("eve", 500), ("bob", 500)]

    def test_a_loop_that_names_its_calls_need_not_repeat_them(self, client: SyncClient, bank: Bank):
        lives(client, lambda run: pay(run, bank, key="c1"), lambda run: pay(run, bank, key="c2"))
        assert len(bank.paid) == 2

    def test_calls_side_by_side_are_told_apart_in_whatever_order(self, store: Store, bank: Bank):
        async def program(client: Client, *names: str) -> None:
            async with client.run("s") as run:

                async def one(to: str) -> None:
                    await run.effect("pay", bank.pay, to, 500)

                await asyncio.gather(*map(one, names))

        async def both_lives() -> None:
            async with store.async_client() as client:
                await program(client, "ann")
                await program(client, "bob", "ann")

        asyncio.run(both_lives())
        assert sorted(bank.paid) == [("ann", 500), ("bob", 500)]


def test_a_state_of_a_newer_program_is_refused_before_anything_is_done(client: SyncClient, bank: Bank):
    with client.run("s", agent_id="buyer", state_version=3) as run:
        run.step("x", lambda: 1)
    for known in (None, 2):
        with pytest.raises(NewerStateError, match="state version is 3"):
            client.run("s", agent_id="buyer", state_version=known)
    with client.run("s", agent_id="buyer", state_version=3) as run:
        assert run.resumed


def test_a_state_that_can_not_be_kept_is_a_failed_save_like_others(quick: SyncClient, caplog: pytest.LogCaptureFixture):
    with quick.run("s", on_save_error="warn") as run:
        run.state["what"] = object()
        assert run.step("x", lambda: 1) == 1
        assert "could not be saved" in caplog.text
        del run.state["what"]
    with quick.run("s") as run:
        assert run.step("x", lambda: 2) == 1


def test_all_that_a_tool_is_called_with_is_the_tools(quick: SyncClient):
    called = []
    with quick.run("s") as run:

        @run.tool(kind="irreversible")
        def send(name: str, key: str | None = None, kind: str = "", approve: bool = False) -> None:
            called.append((name, key, kind, approve))

        send("a", key="K", kind="letter", approve=True)
        run.effect("send", lambda name, fn: called.append((name, fn)), name="b", fn="c", kind="idempotent")
        run.step("note", lambda name: called.append(("d", name)), name="d")
    assert called == [("a", "K", "letter", True), ("b", "c"), ("d", "d")]


def test_one_class_of_exceptions_is_as_good_as_several(quick: SyncClient):
    def refuse() -> None:
        raise OSError("the line is dead")

    with quick.run("s") as run:
        with pytest.raises(OSError, match="dead"):
            run.effect("send", refuse, not_done=OSError)
        [effect] = quick.effects("s")
        assert effect.state == "failed"
        with pytest.raises(ValueError, match="classes of exceptions"):
            run.effect("send", refuse, not_done="OSError")


def test_a_coroutine_function_is_refused_before_it_is_written_down(quick: SyncClient):
    async def send() -> None: ...

    with quick.run("s") as run:
        with pytest.raises(ValueError, match="is async"):
            run.effect("send", send)
        assert quick.effects("s") == []
