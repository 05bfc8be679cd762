"""An agent of Strands that is killed in the middle of its work, and goes on. No network, no key.

The first run is killed after the payment. The second one does not pay again, and asks a person.

    $ python examples/frameworks/strands_agent.py --crash
    the model is asked for step 1
    paying the invoice 7
    the model is asked for step 2
    [killed]
    $ python examples/frameworks/strands_agent.py
    the model is asked for step 2
    'archive' of session 'invoice-7' waits for approval...
    [exit 6]
    $ holdfast approvals
    id...
    ...invoice-7  archive(invoice_id=7)...pending
    $ python examples/frameworks/strands_agent.py --approve
    archiving the invoice 7
    the model is asked for step 3
    paid, and archived
"""

from __future__ import annotations

import json
import os
import signal
import sys

from strands import Agent, ToolContext, tool
from strands.models import Model

from holdfast import Effect, SyncClient
from holdfast.errors import ApprovalPendingError
from holdfast.strands import resumable

SESSION = "invoice-7"


class ScriptedModel(Model):
    """A model that pays, archives, and ends. Its answer depends on the conversation only."""

    def update_config(self, **config):
        pass

    def get_config(self):
        return {}

    def structured_output(self, *args, **options):
        raise NotImplementedError  # this example asks for text only

    async def stream(self, messages, *args, **options):
        step = 1 + sum("toolResult" in block for message in messages for block in message["content"])
        print(f"the model is asked for step {step}", flush=True)
        if step == 2 and "--crash" in sys.argv:
            os.kill(os.getpid(), signal.SIGKILL)
        tools = {1: "pay", 2: "archive"}
        yield {"messageStart": {"role": "assistant"}}
        if step in tools:
            yield {"contentBlockStart": {"start": {"toolUse": {"toolUseId": f"call-{step}", "name": tools[step]}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps({"invoice_id": 7})}}}}
        else:
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": "paid, and archived"}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if step in tools else "end_turn"}}


@tool
def pay(invoice_id: int) -> str:
    """Pay an invoice."""
    print(f"paying the invoice {invoice_id}", flush=True)
    return f"receipt {invoice_id}"


@tool(context=True)
def archive(invoice_id: int, tool_context: ToolContext) -> str:
    """Archive an invoice."""
    if tool_context.interrupt("archive", reason="it can't be undone") != "y":
        return "not archived"
    print(f"archiving the invoice {invoice_id}", flush=True)
    return f"archived {invoice_id}"


def main() -> None:
    agent = Agent(ScriptedModel(), name="payer", tools=[pay, archive], callback_handler=None)
    agent = resumable(agent, session_id=SESSION, tools={"pay": Effect("irreversible", key="invoice_id")})
    if "--approve" in sys.argv:  # as a colleague would, from another process
        with SyncClient.sqlite() as client:
            for asked in client.approvals(SESSION):
                client.decide(asked.approval_id, "approve", by="ann")
    try:
        result = agent("pay the invoice 7")
    except ApprovalPendingError as pending:
        print(pending)
        sys.exit(6)
    print(str(result).strip())


if __name__ == "__main__":
    main()
