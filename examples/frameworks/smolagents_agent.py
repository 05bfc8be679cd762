"""A code agent of smolagents that is killed in the middle of its code, and goes on. No network, no key.

The first run is killed after the first of two payments, within one piece of code. The second one executes the code
again: the first payment is not made again, and a variable is as it was.

    $ python examples/frameworks/smolagents_agent.py --crash
    the model is asked for step 1
    paying the invoice 7
    [killed]
    $ python examples/frameworks/smolagents_agent.py
    paying the invoice 8
    the model is asked for step 2
    ['receipt 7', 'receipt 8'], 80 left
    $ holdfast timeline invoices
    ...
"""

from __future__ import annotations

import os
import signal
import sys

from smolagents import ChatMessage, CodeAgent, LogLevel, MessageRole, Model, tool

from holdfast import Effect
from holdfast.smolagents import resumable

CODE = {
    1: "left = 100\nreceipts = []\nfor number in [7, 8]:\n    receipts.append(pay(number))\n    left -= 10",
    2: "final_answer(f'{receipts}, {left} left')",
}


class ScriptedModel(Model):
    """A model that writes code. Its answer depends on the conversation only."""

    def generate(self, messages, *_, **__):
        step = 1 + sum(message.role == MessageRole.TOOL_RESPONSE for message in messages)
        print(f"the model is asked for step {step}", flush=True)
        return ChatMessage(role=MessageRole.ASSISTANT, content=f"Thought: go.\n<code>\n{CODE[step]}\n</code>")


@tool
def pay(invoice_id: int) -> str:
    """Pay an invoice.

    Args:
        invoice_id: The number of the invoice.
    """
    if invoice_id == 8 and "--crash" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
    print(f"paying the invoice {invoice_id}", flush=True)
    return f"receipt {invoice_id}"


def main() -> None:
    agent = CodeAgent(tools=[pay], model=ScriptedModel(), verbosity_level=LogLevel.OFF)
    agent = resumable(agent, session_id="invoices", tools={"pay": Effect("idempotent", key="invoice_id")})
    print(agent.run("Pay the invoices 7 and 8."))


if __name__ == "__main__":
    main()
