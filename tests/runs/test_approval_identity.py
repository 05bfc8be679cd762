"""An approval is bound to the identity of its call, and can be requested again."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from stores import Clock, Store

from holdfast import ApprovalPendingError, ApprovalRejectedError, SyncClient, SyncRun


class Bank:
    def __init__(self) -> None:
        self.paid: list[tuple[Any, ...]] = []
        self.dies = False
        self.asked: list[tuple[Any, ...]] = []

    def pay(self, to: str, amount: int, ref: str = "") -> str:
        self.paid.append((to, amount, ref))
        if self.dies:
            raise KeyboardInterrupt
        return f"receipt of {ref}"

    def find(self, to: str, amount: int, ref: str = "") -> Any:
        import holdfast

        self.asked.append((to, amount, ref))
        return holdfast.Done("found") if (to, amount, ref) in self.paid else holdfast.NOT_DONE


def life(run: SyncRun, bank: Bank, **options: Any) -> object:
    """With a new reference in each life."""
    return run.effect("pay", bank.pay, "bob", 500, str(uuid.uuid4()), approve="finance", **options)


@pytest.mark.parametrize("options", [{"volatile": "ref"}, {"identity": ("to", "amount")}, {"key": "order-1"}], ids=str)
def test_what_was_approved_is_what_is_carried_out(store: Store, options: dict[str, Any]):
    client, bank = store.client(), Bank()
    for _ in range(3):
        with pytest.raises(ApprovalPendingError), store.client().run("s") as run:
            life(run, bank, **options)
    [waiting] = client.approvals("s")
    client.decide(waiting.approval_id, "approve", by="ann")
    for _ in range(2):
        with store.client().run("s") as run:
            assert life(run, bank, **options) == f"receipt of {waiting.call.arguments['ref']}"
    assert bank.paid == [("bob", 500, waiting.call.arguments["ref"])]
    [effect] = client.effects("s")
    assert effect.arguments == waiting.call.arguments


def test_other_arguments_of_the_approver_count_too(client: SyncClient):
    bank = Bank()
    with pytest.raises(ApprovalPendingError), client.run("s") as run:
        life(run, bank, key="order-1")
    [waiting] = client.approvals("s")
    changed = {"to": "bob", "amount": 450, "ref": "of ann"}
    client.decide(waiting.approval_id, "modify", by="ann", arguments=changed)
    for _ in range(2):
        with client.run("s") as run:
            assert life(run, bank, key="order-1") == "receipt of of ann"
    assert bank.paid == [("bob", 450, "of ann")]


def test_a_rejection_holds_for_the_identity(client: SyncClient):
    bank = Bank()
    with pytest.raises(ApprovalPendingError), client.run("s") as run:
        life(run, bank, volatile="ref")
    client.decide(client.approvals("s")[0].approval_id, "reject", by="ann")
    with pytest.raises(ApprovalRejectedError), client.run("s") as run:
        life(run, bank, volatile="ref")
    assert bank.paid == []


def test_a_probe_is_asked_about_what_was_carried_out(client: SyncClient):
    """Not about the arguments that this life has made."""
    bank = Bank()
    options: dict[str, Any] = {"volatile": "ref", "probe": bank.find}
    with pytest.raises(ApprovalPendingError), client.run("s") as run:
        life(run, bank, **options)
    client.decide(client.approvals("s")[0].approval_id, "approve", by="ann")
    bank.dies = True
    with pytest.raises(KeyboardInterrupt), client.run("s") as run:
        life(run, bank, **options)
    bank.dies = False
    with client.run("s") as run:
        assert life(run, bank, **options) == "found"
    assert bank.asked == bank.paid
    assert len(bank.paid) == 1


@pytest.mark.slow
def test_a_call_may_be_asked_for_as_often_as_it_takes(quick: SyncClient, clock: Clock):
    clock.rules(quick)
    bank = Bank()
    for _ in range(230):  # more than fit a page, and than there are attempts
        with pytest.raises(ApprovalPendingError), quick.run("s", approval_seconds=10) as run:
            run.effect("pay", bank.pay, "bob", 5, approve="finance")
        clock.forward(11)
    with pytest.raises(ApprovalPendingError), quick.run("s", approval_seconds=10) as run:
        run.effect("pay", bank.pay, "bob", 5, approve="finance")
    [waiting] = quick.approvals("s")
    quick.decide(waiting.approval_id, "approve", by="ann")
    with quick.run("s") as run:
        assert run.effect("pay", bank.pay, "bob", 5, approve="finance") == "receipt of "
    assert len(quick.approvals("s", pending=False)) == 231


def test_with_await_too(store: Store):
    bank = Bank()

    async def program() -> None:
        async with store.async_client() as client:
            for _ in range(2):
                with pytest.raises(ApprovalPendingError):
                    async with client.run("s") as run:
                        await run.effect("pay", bank.pay, "bob", 5, str(uuid.uuid4()), volatile="ref", approve=True)
            [waiting] = await client.approvals("s")
            await client.decide(waiting.approval_id, "approve", by="ann")
            async with client.run("s") as run:
                await run.effect("pay", bank.pay, "bob", 5, str(uuid.uuid4()), volatile="ref", approve=True)
            assert bank.paid == [("bob", 5, waiting.call.arguments["ref"])]

    asyncio.run(program())
