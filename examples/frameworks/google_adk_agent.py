"""An agent of Google ADK that is killed while it pays, and pays once. Needs `holdfast[google-adk]`.

    $ python examples/frameworks/google_adk_agent.py
    the model is asked
    balance: 100
    the model is asked
    pay: invoice 7
    [killed]
    $ python examples/frameworks/google_adk_agent.py
    the bank is asked: invoice 7 is paid
    the model is asked
    archive: invoice 7 waits for a person
    $ holdfast approve ID --yes --by ann
    ...
    $ python examples/frameworks/google_adk_agent.py
    archive: invoice 7
    the model is asked
    Invoice 7 is paid and archived.
    $ python examples/frameworks/google_adk_agent.py
    Invoice 7 is paid and archived.

The model is a fake one, so that the example needs no network. Everything else is as in a real program.
"""

import logging
import os
import signal
from pathlib import Path

from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.tools import FunctionTool
from google.genai import types

from holdfast import NOT_DONE, Done, Effect
from holdfast.errors import ApprovalPendingError
from holdfast.google_adk import resumable

BANK = Path("bank.txt")
PLAN = [
    types.Part(function_call=types.FunctionCall(name="balance", args={})),
    types.Part(function_call=types.FunctionCall(name="pay", args={"invoice": "7"})),
    types.Part(function_call=types.FunctionCall(name="archive", args={"invoice": "7"})),
    types.Part(text="Invoice 7 is paid and archived."),
]


class FakeModel(BaseLlm):
    """Answers with the next entry of the plan."""

    async def generate_content_async(self, llm_request, stream=False):
        print("the model is asked")
        done = sum(bool(part.function_response) for content in llm_request.contents for part in content.parts)
        yield LlmResponse(content=types.Content(role="model", parts=[PLAN[done].model_copy(deep=True)]))


def balance() -> int:
    """Return the balance of the account."""
    print("balance: 100")
    return 100


def pay(invoice: str) -> str:
    """Pay an invoice."""
    print(f"pay: invoice {invoice}", flush=True)
    BANK.write_text(invoice)
    os.kill(os.getpid(), signal.SIGKILL)  # the worst moment: it is paid, and no one has written it down
    return "paid"


def archive(invoice: str) -> str:
    """Archive an invoice, which a person must confirm."""
    print(f"archive: invoice {invoice}")
    return "archived"


def find_payment(invoice: str):
    """Ask the bank whether an invoice is paid."""
    is_paid = BANK.exists() and BANK.read_text() == invoice
    print(f"the bank is asked: invoice {invoice} is {'paid' if is_paid else 'not paid'}")
    return Done("paid") if is_paid else NOT_DONE


logging.disable(logging.WARNING)
clerk = LlmAgent(
    name="clerk",
    model=FakeModel(model="fake"),
    instruction="You pay invoices.",
    tools=[balance, pay, FunctionTool(archive, require_confirmation=True)],
)
agent = resumable(  # the changed line, instead of a Runner
    clerk,
    session_id="invoice-7",
    tools={"balance": "read", "pay": Effect("irreversible", key="invoice", probe=find_payment)},
)
try:
    *_, last = agent.run(user_id="ann", new_message="Pay invoice 7.")
    print(last.content.parts[0].text)
except ApprovalPendingError:
    print("archive: invoice 7 waits for a person")
