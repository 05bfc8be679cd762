"""A fulfilment agent for crash tests: parallel tasks with keys, sub-agents, approvals and retries."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

from effect_world import RefusedError, World, receipt

from holdfast import NOT_DONE, ApprovalPendingError, Client, Done, EffectBlockedError, EffectUnknownError

LONGEST = 0.3
WORKERS = 3
IN_DOUBT = (EffectUnknownError, EffectBlockedError, ApprovalPendingError)


def orders(number: int) -> list[dict[str, Any]]:
    """The orders of a session. Some cost enough to be approved, some are charged only the second time."""
    return [{"id": f"order-{number}-{nth}", "amount": 100 + 100 * nth} for nth in range(6)]


def needs_approval(order: dict[str, Any]) -> bool:
    return bool(order["amount"] in (300, 600))


def is_refused_first(order: dict[str, Any]) -> bool:
    return bool(order["amount"] in (200, 600))


def wanted(number: int) -> dict[str, Counter[str]]:
    ids = Counter(order["id"] for order in orders(number))
    once_a_session = Counter([f"session-{number}"])
    return {"charge": ids, "ship": ids, "label": ids, "notify": ids, "report": once_a_session}


def live(begun: Callable[[], object], url: str, session: str, world: World, number: int, *, is_control: bool) -> str:
    return asyncio.run(Fulfilment(url, session, world, number, is_control=is_control).run(begun))


class Fulfilment:
    """One life of the agent."""

    def __init__(self, url: str, session: str, world: World, number: int, *, is_control: bool) -> None:
        self._url, self._session, self._world = url, session, world
        self._orders = orders(number)
        self._is_control = is_control
        self._waits_for: list[str] = []

    async def run(self, begun: Callable[[], object]) -> str:
        async with Client.open(self._url) as client:
            terms: dict[str, Any] = {"agent_id": "fulfilment", "wait": 120, "approval_wait": 30}
            async with await client.run(self._session, **terms) as run:
                begun()
                await run.step("plan", lambda: [order["id"] for order in self._orders])
                tasks = run.tasks("orders", self._orders, retry_failed=True)
                await asyncio.gather(*(self._work(run, tasks) for _ in range(WORKERS)))
                await asyncio.gather(*(self._notify(run, order) for order in self._orders))
                if not self._waits_for:
                    await self._doing(self._session, self._effect(run, "report", self._session))
        return f"waiting for {', '.join(self._waits_for)}" if self._waits_for else "done"

    async def _work(self, run: Any, tasks: Any) -> None:
        async for task in tasks:
            order = task.item
            is_done = await self._doing(order["id"], self._fulfil(run, order))
            if not is_done:
                task.fail("it waits for a person")

    async def _notify(self, run: Any, order: dict[str, Any]) -> None:
        """Beside each other, without a list of tasks: told apart by their keys alone."""
        await self._doing(order["id"], self._effect(run, "notify", order["id"], key=order["id"]))

    async def _doing(self, what: str, doing: Any) -> bool:
        """Whether something was done. What waits for a person leaves all others alone."""
        try:
            await doing
        except IN_DOUBT as error:
            if isinstance(error, EffectBlockedError):
                self._world.note("blocked", f"{what}: {error}")
            self._waits_for.append(what)
            return False
        return True

    async def _fulfil(self, run: Any, order: dict[str, Any]) -> None:
        await run.step("check stock", lambda: True)
        await self._charge(run, order)
        async with run.subagent("shipper", subagent_id=order["id"]) as shipper:
            await self._effect(shipper, "ship", order["id"])
        await self._effect(run, "label", order["id"], key=order["id"], probe=self._find)

    async def _charge(self, run: Any, order: dict[str, Any]) -> None:
        """Tries again where the bank has certainly not charged."""
        for _ in range(3):
            try:
                await self._effect(
                    run, "charge", order["id"], key=order["id"], not_done=(RefusedError,),
                    approve="finance" if needs_approval(order) else None, refuses=is_refused_first(order),
                )  # fmt: skip
            except RefusedError:
                continue
            return

    async def _effect(self, run: Any, what: str, decision: str, *, refuses: bool = False, **how: Any) -> Any:
        def carry_out(what: str, decision: str, idempotency_key: str = "") -> str:
            if refuses:
                self._world.refuse_once(what, decision)
            return self._world.do(what, decision, idempotency_key)

        if self._is_control:  # without a ledger: recorded when it is over, and not before
            return await run.step(what, carry_out, what, decision, key=how.get("key"), raises=how.get("not_done", ()))
        return await run.effect(what, carry_out, what, decision, **how)

    def _find(self, what: str, decision: str, idempotency_key: str = "") -> Any:
        return NOT_DONE if self._world.find(idempotency_key) is None else Done(receipt(what, decision))


if __name__ == "__main__":
    sys.exit("effect_driver.py runs it")
