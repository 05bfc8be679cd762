"""An agent of agent-framework that is killed in the middle of its work, and goes on. No network, no key.

The first run is killed after the payment. The second one does not pay again, and asks a person.

    $ python examples/frameworks/agent_framework_agent.py --crash
    the model is asked for step 1
    paying the invoice 7
    the model is asked for step 2
    [killed]
    $ python examples/frameworks/agent_framework_agent.py
    the model is asked for step 2
    'archive' of session 'invoice-7' waits for approval...
    [exit 6]
    $ holdfast approvals
    id...
    ...invoice-7  archive(invoice_id=7)...pending
    $ python examples/frameworks/agent_framework_agent.py --approve
    archiving the invoice 7
    the model is asked for step 3
    paid, and archived
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    Message,
    tool,
)

from holdfast import Client, Effect
from holdfast.agent_framework import resumable
from holdfast.errors import ApprovalPendingError

SESSION = "invoice-7"


class ScriptedClient(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """A model that pays, archives, and ends. Its answer depends on the conversation only."""

    async def _inner_get_response(self, *, messages, **_):
        step = 1 + sum(message.role == "tool" for message in messages)
        print(f"the model is asked for step {step}", flush=True)
        if step == 2 and "--crash" in sys.argv:
            os.kill(os.getpid(), signal.SIGKILL)
        calls = {1: "pay", 2: "archive"}
        if step in calls:
            content = Content.from_function_call(f"call-{step}", calls[step], arguments={"invoice_id": 7})
        else:
            content = Content.from_text("paid, and archived")
        return ChatResponse(messages=[Message("assistant", [content])])


@tool
def pay(invoice_id: int) -> str:
    """Pay an invoice."""
    print(f"paying the invoice {invoice_id}", flush=True)
    return f"receipt {invoice_id}"


@tool(approval_mode="always_require")
def archive(invoice_id: int) -> str:
    """Archive an invoice."""
    print(f"archiving the invoice {invoice_id}", flush=True)
    return f"archived {invoice_id}"


async def main() -> None:
    agent = Agent(ScriptedClient(), name="payer", tools=[pay, archive])
    agent = resumable(agent, session_id=SESSION, tools={"pay": Effect("irreversible", key="invoice_id")})
    if "--approve" in sys.argv:  # as a colleague would, from another process
        async with Client.sqlite() as client:
            for asked in await client.approvals(SESSION):
                await client.decide(asked.approval_id, "approve", by="ann")
    try:
        response = await agent.run("pay the invoice 7")
    except ApprovalPendingError as pending:
        print(pending)
        sys.exit(6)
    print(response.text)


if __name__ == "__main__":
    asyncio.run(main())
