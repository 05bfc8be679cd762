"""An agent of Haystack that is killed while it pays, and pays once. Needs `holdfast[haystack]`.

    $ python examples/frameworks/haystack_agent.py
    the model is asked
    pay: invoice 7
    [killed]
    $ python examples/frameworks/haystack_agent.py
    the bank is asked: invoice 7 is paid
    the model is asked
    archive: invoice 7 waits for a person
    $ holdfast approve ID --yes --by ann
    ...
    $ python examples/frameworks/haystack_agent.py
    archive: invoice 7
    the model is asked
    Invoice 7 is paid and archived, in 3 steps.
    $ python examples/frameworks/haystack_agent.py
    Invoice 7 is paid and archived, in 3 steps.

The model is a fake one, so that the example needs no network. Everything else is as in a real program.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from haystack.components.agents import Agent
from haystack.components.generators.chat import MockChatGenerator
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.hooks.human_in_the_loop import (
    AlwaysAskPolicy,
    BlockingConfirmationStrategy,
    ConfirmationHook,
    SimpleConsoleUI,
)
from haystack.tools import tool

from holdfast import NOT_DONE, Done, Effect
from holdfast.errors import ApprovalPendingError
from holdfast.haystack import resumable

BANK = Path("bank.txt")


def answer(messages: list[ChatMessage]) -> ChatMessage | str:
    """Pay, archive, and say so. The answer depends on the conversation only."""
    print("the model is asked", flush=True)
    done = sum(message.is_from("tool") for message in messages)
    if done == 2:
        return "Invoice 7 is paid and archived"
    return ChatMessage.from_assistant(
        tool_calls=[ToolCall(("pay", "archive")[done], {"invoice": 7}, id=f"call-{done}")]
    )


@tool
def pay(invoice: int) -> str:
    """Pay an invoice."""
    print(f"pay: invoice {invoice}", flush=True)
    BANK.write_text(f"{invoice}")
    os.kill(os.getpid(), signal.SIGKILL)
    return "paid"


@tool
def archive(invoice: int) -> str:
    """Archive an invoice."""
    print(f"archive: invoice {invoice}", flush=True)
    return "archived"


def find_payment(invoice: int) -> object:
    is_paid = BANK.exists() and BANK.read_text() == f"{invoice}"
    print(f"the bank is asked: invoice {invoice} is {'paid' if is_paid else 'not paid'}", flush=True)
    return Done("paid") if is_paid else NOT_DONE


def main() -> None:
    confirm = BlockingConfirmationStrategy(confirmation_policy=AlwaysAskPolicy(), confirmation_ui=SimpleConsoleUI())
    agent = Agent(
        chat_generator=MockChatGenerator(response_fn=answer),
        tools=[pay, archive],
        hooks={"before_tool": [ConfirmationHook({"archive": confirm})]},
    )
    effects = {"pay": Effect("irreversible", key="invoice", probe=find_payment), "archive": "idempotent"}
    agent = resumable(agent, session_id="invoice-7", tools=effects)  # the changed line
    try:
        outputs = agent.run([ChatMessage.from_user("Pay invoice 7, and archive it.")], turn="1")
    except ApprovalPendingError:
        print("archive: invoice 7 waits for a person")
        return
    print(f"{outputs['last_message'].text}, in {outputs['step_count']} steps.")


if __name__ == "__main__":
    main()
