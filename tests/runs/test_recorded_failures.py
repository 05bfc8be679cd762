"""Failures that prove that nothing was done are recorded, and raised again on resume."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from stores import Store, python

from holdfast import EffectNotDoneError, SyncClient, SyncRun


class NotEnoughFunds(Exception):  # noqa: N818 - as programs call them
    def __init__(self, balance: int, *, needed: int) -> None:
        super().__init__(f"{balance} is less than {needed}")
        self.balance, self.needed = balance, needed


class AccountClosed(NotEnoughFunds):
    def __init__(self) -> None:
        super().__init__(0, needed=1)


class Declined(EffectNotDoneError):  # noqa: N818 - likewise
    pass


class Bank:
    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.calls: list[str] = []

    def pay(self, *, idempotency_key: str) -> str:
        self.calls.append(idempotency_key)
        if self.failures:
            raise self.failures.pop(0)
        return "receipt"


def retrying(run: SyncRun, bank: Bank, **options: Any) -> tuple[object, list[Exception]]:
    raised: list[Exception] = []
    for _ in range(5):
        try:
            return run.effect("pay", bank.pay, not_done=NotEnoughFunds, **options), raised
        except (NotEnoughFunds, EffectNotDoneError) as error:
            raised.append(error)
    raise AssertionError("it never works")


@pytest.mark.parametrize("options", [{}, {"key": "order-1"}], ids=["plain", "key"])
@pytest.mark.parametrize(
    "failure",
    [NotEnoughFunds(3, needed=5), AccountClosed(), EffectNotDoneError("closed"), Declined("no")],
    ids=lambda one: type(one).__name__,
)
def test_a_retry_loop_survives_a_crash(client: SyncClient, failure: Exception, options: dict[str, Any]):
    bank = Bank(failure)
    with pytest.raises(KeyboardInterrupt), client.run("s") as run:
        with pytest.raises(type(failure)):
            run.effect("pay", bank.pay, not_done=NotEnoughFunds, **options)
        raise KeyboardInterrupt  # the process goes
    with client.run("s") as run:
        receipt, raised = retrying(run, bank, **options)
    assert receipt == "receipt"
    [again] = raised
    assert (type(again), str(again), vars(again)) == (type(failure), str(failure), vars(failure))
    assert len(bank.calls) == 2
    assert len(set(bank.calls)) == 1
    with client.run("s") as run:
        assert retrying(run, bank, **options)[0] == "receipt"
    assert len(bank.calls) == 2


@pytest.mark.parametrize("options", [{}, {"key": "order-1"}], ids=["plain", "key"])
def test_a_retry_loop_tries_again_in_the_same_life(client: SyncClient, options: dict[str, Any]):
    bank = Bank(NotEnoughFunds(3, needed=5), NotEnoughFunds(4, needed=5))
    for _ in range(2):
        with client.run("s") as run:
            assert retrying(run, bank, **options)[0] == "receipt"
    assert len(bank.calls) == 3
    assert len(set(bank.calls)) == 1


def test_a_step_with_a_key_is_tried_again_in_the_same_life(client: SyncClient):
    tries: list[int] = []

    def ask() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise TimeoutError("no answer")
        return "yes"

    for _ in range(2):
        with client.run("s") as run:
            for _ in range(3):
                try:
                    assert run.step("ask", ask, key="first") == "yes"
                except TimeoutError:
                    continue
                break
    assert len(tries) == 3


def test_a_subclass_that_is_gone_comes_back_as_what_the_program_handles(client: SyncClient):
    def pay() -> None:
        class Gone(NotEnoughFunds):
            pass

        raise Gone(3, needed=5)

    for _ in range(2):
        with client.run("s") as run:
            with pytest.raises(NotEnoughFunds, match="3 is less than 5") as raised:
                run.effect("pay", pay, not_done=NotEnoughFunds)
            run.step("more", lambda: 1)
        assert raised.value.balance == 3


def test_with_await_too(store: Store):
    bank = Bank(NotEnoughFunds(3, needed=5))

    async def program() -> None:
        async with store.async_client() as client:
            for _ in range(2):
                async with client.run("s") as run:
                    with pytest.raises(NotEnoughFunds):
                        await run.effect("pay", bank.pay, not_done=NotEnoughFunds)
                    await run.step("more", lambda: 1)

    asyncio.run(program())
    assert len(bank.calls) == 1


def test_a_default_that_is_added_changes_neither_the_effect_nor_its_key(client: SyncClient):
    keys: list[str] = []

    def of_version_1(to: str, amount: int = 5, *, idempotency_key: str) -> str:
        keys.append(idempotency_key)
        if len(keys) == 1:
            raise KeyboardInterrupt
        return "receipt"

    def of_version_2(
        to: str, amount: int = 5, memo: str | None = None, *, idempotency_key: str, urgent: bool = False
    ) -> str:
        return of_version_1(to, amount, idempotency_key=idempotency_key)

    with pytest.raises(KeyboardInterrupt), client.run("s") as run:
        run.effect("pay", of_version_1, "bob", kind="idempotent")
    for args in (("bob",), ("bob", 5)):
        with client.run("s") as run:
            assert run.effect("pay", of_version_2, *args, kind="idempotent") == "receipt"
    assert len(keys) == 2
    assert len(set(keys)) == 1


def test_a_default_need_not_be_a_value_that_can_be_kept(quick: SyncClient):
    def pay(to: str, session: object = object()) -> str:
        return f"paid {to}"

    for _ in range(2):
        with quick.run("s") as run:
            assert run.effect("pay", pay, "bob") == "paid bob"
    assert len(quick.effects()) == 1


KILLED = """
    import os, sys
    from pathlib import Path
    from holdfast import EffectNotDoneError, SyncClient
    url, world, dies = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    class NotEnoughFunds(Exception):
        pass
    def pay():
        calls = world.read_text().split() if world.exists() else []
        with world.open("a") as file:
            file.write("call ")
        if len(calls) < 3:
            raise NotEnoughFunds("later")
        return "receipt"
    with SyncClient.open(url) as client, client.run("s") as run:
        for number in range(9):
            try:
                print(run.effect("pay", pay, key="order-1", not_done=NotEnoughFunds), flush=True)
                break
            except NotEnoughFunds:
                if number == dies:
                    os._exit(9)
"""


@pytest.mark.slow
def test_a_loop_that_is_killed_after_each_failure_comes_to_its_end(sqlite_store: Store, tmp_path: Path):
    world = tmp_path / "world"
    told = [python(KILLED, sqlite_store.url, str(world), str(dies), check=False) for dies in (0, 1, 9, 9)]
    assert [one.stdout.split() for one in told] == [[], [], ["receipt"], ["receipt"]], told[2].stderr
    assert world.read_text().split() == ["call"] * 4
