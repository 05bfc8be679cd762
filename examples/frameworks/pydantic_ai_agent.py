"""An agent of Pydantic AI that is killed in the middle of its work, and goes on. No network, no key.

The first run is killed after the payment. The second one does not pay again, and asks a person.

    $ python examples/frameworks/pydantic_ai_agent.py --crash
    the model is asked for step 1
    paying invoice 7
    the model is asked for step 2
    [killed]
    $ python examples/frameworks/pydantic_ai_agent.py
    the model is asked for step 2
    'archive' of session 'invoice-7' waits for approval...
    [exit 6]
    $ holdfast approve ID --by ann --yes
    ...
    $ python examples/frameworks/pydantic_ai_agent.py
    archiving invoice 7
    the model is asked for step 3
    paid, and archived
    $ holdfast show invoice-7 --messages
    0 user
      Pay invoice 7.
    1 assistant
      → pay(invoice_id=7)
    2 tool pay
      receipt 7
    3 assistant
      → archive(invoice_id=7)
    4 tool archive
      archived 7
    5 assistant
      paid, and archived
"""

from __future__ import annotations

import os
import signal
import sys

from pydantic_ai import Agent, ModelResponse
from pydantic_ai.messages import TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

from holdfast import Effect
from holdfast.errors import ApprovalPendingError
from holdfast.pydantic_ai import resumable


def answer(messages, _):
    """A model that pays, archives, and ends. Its answer depends on the conversation only."""
    done = sum(isinstance(part, ToolReturnPart) for message in messages for part in message.parts)
    print(f"the model is asked for step {done + 1}", flush=True)
    if done == 1 and "--crash" in sys.argv:
        os.kill(os.getpid(), signal.SIGKILL)
    if done == 2:
        return ModelResponse([TextPart("paid, and archived")])
    tool = "archive" if done else "pay"
    return ModelResponse([ToolCallPart(tool, {"invoice_id": 7}, tool_call_id=f"call-{done}")])


agent = Agent(FunctionModel(answer), name="clerk")


@agent.tool_plain
@Effect("irreversible", key="invoice_id")
def pay(invoice_id: int) -> str:
    print(f"paying invoice {invoice_id}", flush=True)
    return f"receipt {invoice_id}"


@agent.tool_plain(requires_approval=True)
@Effect("idempotent")
def archive(invoice_id: int) -> str:
    print(f"archiving invoice {invoice_id}", flush=True)
    return f"archived {invoice_id}"


if __name__ == "__main__":
    try:
        print(resumable(agent, session_id="invoice-7").run_sync("Pay invoice 7.").output)
    except ApprovalPendingError as waiting:
        print(waiting)
        sys.exit(6)
