"""An agent of LangChain's `create_agent` that is killed in the middle of its work, and goes on. No network, no key.

The changed line is `checkpointer=`. The first run is killed after the payment. The second one does not pay again, and
waits for a person, who may answer in another process.

    $ python examples/frameworks/langchain_agent.py --crash
    the model is asked for step 1
    paying the invoice 7
    the model is asked for step 2
    [killed]
    $ python examples/frameworks/langchain_agent.py
    the model is asked for step 2
    waiting for a decision about archive
    $ python examples/frameworks/langchain_agent.py --approve
    archiving the invoice 7
    the model is asked for step 3
    paid, and archived
    $ holdfast sessions
    ...
"""

from __future__ import annotations

import os
import signal
import sys

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.types import Command

from holdfast.langgraph import HoldfastSaver

CALLS = {1: ("pay", "call-1"), 2: ("archive", "call-2")}


class ScriptedModel(BaseChatModel):
    """A model that pays, archives, and ends. Its answer depends on the conversation only."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools, **_):
        return self

    def _generate(self, messages, *_, **__):
        step = 1 + sum(isinstance(message, ToolMessage) for message in messages)
        print(f"the model is asked for step {step}", flush=True)
        if step == 2 and "--crash" in sys.argv:
            os.kill(os.getpid(), signal.SIGKILL)
        if step in CALLS:
            name, id_ = CALLS[step]
            answer = AIMessage("", tool_calls=[{"name": name, "args": {"invoice_id": 7}, "id": id_}])
        else:
            answer = AIMessage("paid, and archived")
        return ChatResult(generations=[ChatGeneration(message=answer)])


def pay(invoice_id: int) -> str:
    """Pay an invoice."""
    print(f"paying the invoice {invoice_id}", flush=True)
    return f"receipt {invoice_id}"


def archive(invoice_id: int) -> str:
    """Archive an invoice."""
    print(f"archiving the invoice {invoice_id}", flush=True)
    return "archived"


def main() -> None:
    with HoldfastSaver.from_sqlite(".holdfast/store.db") as saver:
        agent = create_agent(
            ScriptedModel(),
            tools=[pay, archive],
            middleware=[HumanInTheLoopMiddleware(interrupt_on={"archive": True})],
            checkpointer=saver,  # the changed line
        )
        thread = {"configurable": {"thread_id": "invoice-7"}}
        is_begun = agent.get_state(thread).created_at is not None
        given = None if is_begun else {"messages": [{"role": "user", "content": "pay the invoice 7"}]}
        if "--approve" in sys.argv:
            given = Command(resume={"decisions": [{"type": "approve"}]})
        result = agent.invoke(given, thread, durability="sync")  # saved before the next step begins
        if "__interrupt__" in result:
            [asked] = result["__interrupt__"]
            print(f"waiting for a decision about {asked.value['action_requests'][0]['name']}")
        else:
            print(result["messages"][-1].content)


if __name__ == "__main__":
    main()
