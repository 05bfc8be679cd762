"""A workflow of LlamaIndex that is killed in the middle of its work, and goes on. No network, no key.

The first run is killed after the payment. The second one does not pay again, and asks a person.

    $ python examples/frameworks/llama_index_agent.py --crash
    the model is asked for step 1
    paying the invoice 7
    the model is asked for step 2
    [killed]
    $ python examples/frameworks/llama_index_agent.py
    the model is asked for step 2
    'ask' of session 'invoice-7' waits for approval...
    [exit 6]
    $ holdfast approvals
    id...
    ...invoice-7  ask(...pending
    $ python examples/frameworks/llama_index_agent.py --approve
    paid, and archived: go ahead
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from workflows import Context, Workflow, step
from workflows.events import Event, HumanResponseEvent, InputRequiredEvent, StartEvent, StopEvent

from holdfast import Client, Effect
from holdfast.errors import ApprovalPendingError
from holdfast.llama_index import call_model, call_tool, resumable

SESSION = "invoice-7"


async def ask_model(messages: list[dict]) -> dict:
    """A model that pays, then asks for the boss. Its answer depends on the conversation only."""
    number = sum(message["role"] == "assistant" for message in messages) + 1
    print(f"the model is asked for step {number}", flush=True)
    if number == 2 and "--crash" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"role": "assistant", "content": "pay the invoice 7" if number == 1 else "may I archive it?"}


def pay(invoice_id: int) -> str:
    """Pay an invoice."""
    print(f"paying the invoice {invoice_id}", flush=True)
    return f"receipt {invoice_id}"


class Pay(Event):
    pass


class Paid(Event):
    pass


class Payer(Workflow):
    @step
    async def ask(self, ctx: Context, ev: StartEvent | Paid) -> Pay | InputRequiredEvent:
        messages = await ctx.store.get("messages", default=[{"role": "user", "content": "pay the invoice 7"}])
        answer = await call_model(ask_model, messages)
        await ctx.store.set("messages", [*messages, answer])
        return Pay() if isinstance(ev, StartEvent) else InputRequiredEvent(prefix=answer["content"])

    @step
    async def use(self, ctx: Context, ev: Pay) -> Paid:
        receipt = await call_tool(pay, invoice_id=7)
        messages = await ctx.store.get("messages")
        await ctx.store.set("messages", [*messages, {"role": "tool", "name": "pay", "content": receipt}])
        return Paid()

    @step
    async def archive(self, ev: HumanResponseEvent) -> StopEvent:
        return StopEvent(result=f"paid, and archived: {ev.response}")


async def main() -> None:
    payer = resumable(Payer(), session_id=SESSION, tools={"pay": Effect("irreversible", key="invoice_id")})
    if "--approve" in sys.argv:  # as a colleague would, from another process
        async with Client.sqlite() as client:
            for asked in await client.approvals(SESSION):
                await client.decide(asked.approval_id, "approve", by="ann", note="go ahead")
    try:
        print(await payer.run())
    except ApprovalPendingError as pending:
        print(pending)
        sys.exit(6)


if __name__ == "__main__":
    asyncio.run(main())
