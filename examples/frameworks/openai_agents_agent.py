"""An agent of the OpenAI Agents SDK that is killed while it pays, and pays once. Needs `holdfast[openai-agents]`.

    $ python examples/frameworks/openai_agents_agent.py
    the model is asked
    balance: 100
    the model is asked
    pay: invoice 7
    [killed]
    $ python examples/frameworks/openai_agents_agent.py
    the bank is asked: invoice 7 is paid
    the model is asked
    archive: invoice 7 waits for a person
    $ holdfast approve ID --yes --by ann
    ...
    $ python examples/frameworks/openai_agents_agent.py
    archive: invoice 7
    the model is asked
    Invoice 7 is paid and archived.
    $ python examples/frameworks/openai_agents_agent.py
    Invoice 7 is paid and archived.

The model is a fake one, so that the example needs no network. Everything else is as in a real program.
"""

import os
import signal
from pathlib import Path

from agents import Agent, Model, ModelResponse, Usage, function_tool, set_tracing_disabled
from agents.testing import assistant_message, function_call

from holdfast import NOT_DONE, Done, Effect
from holdfast.errors import ApprovalPendingError
from holdfast.openai_agents import resumable

BANK = Path("bank.txt")
PLAN = [
    function_call("balance", {}, call_id="1"),
    function_call("pay", {"invoice": "7"}, call_id="2"),
    function_call("archive", {"invoice": "7"}, call_id="3"),
    assistant_message("Invoice 7 is paid and archived."),
]


class FakeModel(Model):
    """Answers with the next entry of the plan."""

    async def get_response(self, system_instructions, input, *_, **__):
        print("the model is asked")
        done = sum(item.get("type") == "function_call_output" for item in input)
        return ModelResponse(output=[PLAN[done]], usage=Usage(), response_id=None)

    def stream_response(self, *_, **__):
        raise NotImplementedError  # this example streams nothing


@function_tool
def balance() -> int:
    """Return the balance of the account."""
    print("balance: 100")
    return 100


@function_tool
def pay(invoice: str) -> str:
    """Pay an invoice."""
    print(f"pay: invoice {invoice}", flush=True)
    BANK.write_text(invoice)
    os.kill(os.getpid(), signal.SIGKILL)  # the worst moment: it is paid, and no one has written it down
    return "paid"


@function_tool(needs_approval=True)
def archive(invoice: str) -> str:
    """Archive an invoice, which a person must approve."""
    print(f"archive: invoice {invoice}")
    return "archived"


def find_payment(invoice: str):
    """Ask the bank whether an invoice is paid."""
    is_paid = BANK.exists() and BANK.read_text() == invoice
    print(f"the bank is asked: invoice {invoice} is {'paid' if is_paid else 'not paid'}")
    return Done("paid") if is_paid else NOT_DONE


set_tracing_disabled(True)
clerk = Agent("clerk", instructions="You pay invoices.", model=FakeModel(), tools=[balance, pay, archive])
agent = resumable(  # the changed line; the rest is the SDK's
    clerk,
    session_id="invoice-7",
    tools={"balance": "read", "pay": Effect("irreversible", key="invoice", probe=find_payment)},
)
try:
    print(agent.run_sync("Pay invoice 7.").final_output)
except ApprovalPendingError:
    print("archive: invoice 7 waits for a person")
