"""A bank for the tests of effects, and programs that pay with it."""

from __future__ import annotations

from typing import Any

import pytest

import holdfast
from holdfast import SyncClient, SyncRun


class Bank:
    """The outside world: it remembers what was done, whatever the store says."""

    def __init__(self) -> None:
        self.paid: list[tuple[str, int]] = []
        self.keys: list[str] = []
        self.refunded: list[object] = []
        self.dies = False

    def pay(self, to: str, amount: int, ref: object = None, *, idempotency_key: str) -> str:
        self.keys.append(idempotency_key)
        self.paid.append((to, amount))
        if self.dies:
            raise KeyboardInterrupt  # as if the process went, after the payment and before anybody heard of it
        return f"receipt {len(self.paid)}"

    def find(self, to: str, amount: int, ref: object = None, *, idempotency_key: str) -> Any:
        return holdfast.Done("found") if idempotency_key in self.keys else holdfast.NOT_DONE

    def refund(self, receipt: object) -> None:
        self.refunded.append(receipt)


def crashed(client: SyncClient, bank: Bank, **options: Any) -> None:
    """A payment whose program died in it."""
    bank.dies = True
    with pytest.raises(KeyboardInterrupt), client.run("s", agent_id="buyer") as run:
        run.effect("pay", bank.pay, "bob", 500, **options)
    bank.dies = False


def pay(run: SyncRun, bank: Bank, to: str = "bob", amount: int = 500, **options: Any) -> object:
    return run.effect("pay", bank.pay, to, amount, **options)
