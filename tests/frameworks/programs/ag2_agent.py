"""An office of AG2 agents that pays two invoices, one a turn.

    python ag2_agent.py STORE DIRECTORY

The clerk reads the balance and has a researcher look the creditor up (an agent as a tool), both at a time. Then it
has a subtask check the invoice, pays, and archives the invoice after a person has approved that. The first turn is
taken by `ask`, and the second is watched by `run` of its reply.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ag2 import Agent, Context, TaskConfig, tool
from ag2.events import BaseEvent, ModelRequest, ToolCallEvent
from ag2.middleware.builtin.tools import approval_required
from ag2_model import FunctionConfig, call, results_of
from call_log import log_call, read_calls

from holdfast import NOT_DONE, Client, Done, Effect
from holdfast.ag2 import resumable
from holdfast.errors import ApprovalPendingError

SESSION = "invoices"
API_KEY = "sk-ag2-0123456789"
INVOICES = "ab"


def invoice_of(events: Sequence[BaseEvent]) -> str:
    """Return the invoice of the turn: the last word that the user said."""
    [request] = [event for event in events if isinstance(event, ModelRequest)][-1:]
    return str(request.parts[-1].content).split()[-1]


def plan_of(directory: Path, agent: str, *plan: Any) -> Callable[[Sequence[BaseEvent]], Any]:
    """Return a model's answers: a function of the request only, of how much of the plan this turn has done."""

    def answer(events: Sequence[BaseEvent]) -> str | list[ToolCallEvent]:
        invoice, done = invoice_of(events), len(results_of(events))
        step = 0
        while done > 0:
            done -= len(plan[step])
            step += 1
        log_call(directory, "model", agent, invoice, step)
        wanted = plan[step]
        if isinstance(wanted, str):
            return f"{wanted} {invoice}"
        return [
            call(name, f"{agent}-{invoice}-{step}-{number}", **{key: one.format(invoice) for key, one in given.items()})
            for number, (name, given) in enumerate(wanted)
        ]

    return answer


def make_office(directory: Path) -> Agent[Any]:
    def config(agent: str, *plan: Any) -> FunctionConfig:
        return FunctionConfig(plan_of(directory, agent, *plan), api_key=API_KEY)

    @tool
    def balance(context: Context) -> int:
        log_call(directory, "balance")
        context.variables["balance"] = 100
        return 100

    @tool
    async def lookup(creditor: str) -> dict[str, Any]:
        log_call(directory, "lookup", creditor)
        return {"creditor": creditor, "rating": 5}

    @tool
    def pay(invoice: str) -> str:
        log_call(directory, "pay", invoice)  # which is the payment
        return f"receipt {invoice}"

    @tool(middleware=[approval_required()])
    def archive(invoice: str, context: Context) -> str:
        log_call(directory, "archive", invoice)
        return f"archived {invoice} at {context.variables['balance']}"

    researcher = Agent(
        "researcher",
        config=config("researcher", [("lookup", {"creditor": "creditor of {}"})], "trust"),
        tools=[lookup],
    )
    checker = config("checker", [("lookup", {"creditor": "check of {}"})], "checked")
    return Agent(
        "clerk",
        "You pay invoices.",
        config=config(
            "clerk",
            [("balance", {}), ("research", {"objective": "look up {}"})],
            [("run_subtask", {"task": "check {}"})],
            [("pay", {"invoice": "{}"})],
            [("archive", {"invoice": "{}"})],
            "paid",
        ),
        tools=[balance, pay, archive, researcher.as_tool(name="research", description="asks a researcher")],
        tasks=TaskConfig(config=checker, include_tools=[], extra_tools=[lookup]),
    )


def declare_tools(directory: Path) -> dict[str, Effect | str]:
    def find_payment(invoice: str) -> Any:
        paid = json.dumps([invoice]) in read_calls(directory).get("pay", [])
        return Done(f"receipt {invoice}") if paid else NOT_DONE

    return {
        "balance": "read",
        "lookup": "read",
        "pay": Effect("irreversible", key="invoice", probe=find_payment),
        "archive": "idempotent",
    }


async def approve(store: str) -> None:
    async with Client.open(store) as client:
        for asked in await client.approvals(SESSION):
            await client.decide(asked.approval_id, "approve", by="ann")


async def watch(reply: Any, given: str) -> Any:
    async with reply.run(given) as run:
        run.start()
        return await run.result()


async def work(store: str, directory: Path) -> list[Any]:
    agent = resumable(make_office(directory), session_id=SESSION, store=store, tools=declare_tools(directory))
    replies: list[Any] = []
    for invoice in INVOICES:
        take = (lambda given: watch(replies[0], given)) if replies else agent.ask
        while True:
            try:
                replies.append(await take(f"pay the invoice {invoice}"))
                break
            except ApprovalPendingError:
                await approve(store)
    return [await describe(reply) for reply in replies]


async def describe(reply: Any) -> dict[str, Any]:
    return {"answer": reply.body, "variables": reply.context.variables, "tokens": reply.response.usage.total_tokens}


async def main(store: str, directory: Path) -> None:
    told = await work(store, directory)
    async with Client.open(store) as client:
        head = await client.latest(SESSION)
        assert head is not None
        kinds = Counter(one["$type"] for one in head.execution_state["messages"])  # parallel calls end in any order
    print(json.dumps({"replies": told, "events": dict(sorted(kinds.items()))}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
