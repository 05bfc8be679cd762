"""An agent of AG2 that is killed while it pays, and pays once. Needs `holdfast[ag2]`.

    $ python examples/frameworks/ag2_agent.py
    the model is asked
    balance: 100
    the model is asked
    pay: invoice 7
    [killed]
    $ python examples/frameworks/ag2_agent.py
    the bank is asked: invoice 7 is paid
    the model is asked
    archive: invoice 7 waits for a person
    $ holdfast approve ID --yes --by ann
    ...
    $ python examples/frameworks/ag2_agent.py
    archive: invoice 7
    the model is asked
    Invoice 7 is paid and archived.
    $ python examples/frameworks/ag2_agent.py
    Invoice 7 is paid and archived.

The model is a fake one, so that the example needs no network. Everything else is as in a real program.
"""

import asyncio
import os
import signal
from pathlib import Path

from ag2 import Agent, tool
from ag2.config import ModelConfig
from ag2.events import ModelMessage, ModelResponse, ToolCallEvent, ToolCallsEvent, ToolResultsEvent
from ag2.middleware.builtin.tools import approval_required

from holdfast import NOT_DONE, Done, Effect
from holdfast.ag2 import resumable
from holdfast.errors import ApprovalPendingError

BANK = Path("bank.txt")
PLAN = [
    ToolCallEvent("balance", id="1"),
    ToolCallEvent("pay", id="2", arguments='{"invoice": "7"}'),
    ToolCallEvent("archive", id="3", arguments='{"invoice": "7"}'),
]


class FakeModel(ModelConfig):
    """Answers with the next entry of the plan."""

    def create(self):
        return self.ask

    async def ask(self, messages, context, **_):
        print("the model is asked")
        done = sum(isinstance(event, ToolResultsEvent) for event in messages)
        if done < len(PLAN):
            return ModelResponse(tool_calls=ToolCallsEvent([PLAN[done]]))
        return ModelResponse(ModelMessage("Invoice 7 is paid and archived."))


@tool
def balance() -> int:
    """Return the balance of the account."""
    print("balance: 100")
    return 100


@tool
def pay(invoice: str) -> str:
    """Pay an invoice."""
    print(f"pay: invoice {invoice}", flush=True)
    BANK.write_text(invoice)
    os.kill(os.getpid(), signal.SIGKILL)  # the worst moment: it is paid, and no one has written it down
    return "paid"


@tool(middleware=[approval_required()])
def archive(invoice: str) -> str:
    """Archive an invoice, which a person must approve."""
    print(f"archive: invoice {invoice}")
    return "archived"


def find_payment(invoice: str):
    """Ask the bank whether an invoice is paid."""
    is_paid = BANK.exists() and BANK.read_text() == invoice
    print(f"the bank is asked: invoice {invoice} is {'paid' if is_paid else 'not paid'}")
    return Done("paid") if is_paid else NOT_DONE


clerk = Agent("clerk", "You pay invoices.", config=FakeModel(), tools=[balance, pay, archive])
agent = resumable(  # the changed line; the rest is AG2's
    clerk,
    session_id="invoice-7",
    tools={"balance": "read", "pay": Effect("irreversible", key="invoice", probe=find_payment)},
)
try:
    print(asyncio.run(agent.ask("Pay invoice 7.")).body)
except ApprovalPendingError:
    print("archive: invoice 7 waits for a person")
