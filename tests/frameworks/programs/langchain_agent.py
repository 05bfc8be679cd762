"""An agent of LangChain's `create_agent` on the LangGraph saver: it pays three invoices, two of them in one step.

python langchain_agent.py STORE DIRECTORY
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from call_log import log_call
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from holdfast.langgraph import HoldfastSaver

PLAN = [["a", "b"], ["c"]]


class ScriptedModel(BaseChatModel):
    """A model that pays by its plan. Its answer depends on the conversation only."""

    directory: Path

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self

    def _generate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
        paid, step = sum(isinstance(message, ToolMessage) for message in messages), 0
        while paid > 0:
            paid -= len(PLAN[step])
            step += 1
        log_call(self.directory, "model", step)
        if step < len(PLAN):
            calls = [{"name": "pay", "args": {"invoice": one}, "id": f"call-{one}"} for one in PLAN[step]]
            answer = AIMessage("", tool_calls=calls, id=f"answer-{step}")
        else:
            answer = AIMessage("all paid", id="answer-last")
        return ChatResult(generations=[ChatGeneration(message=answer)])


def main(store: str, directory: Path) -> None:
    def pay(invoice: str) -> str:
        """Pay an invoice."""
        log_call(directory, "pay", invoice)
        return f"receipt {invoice}"

    with HoldfastSaver.from_conn_string(store) as saver:
        agent = create_agent(ScriptedModel(directory=directory), tools=[pay], checkpointer=saver)
        thread: Any = {"configurable": {"thread_id": "invoices"}}
        is_begun = agent.get_state(thread).created_at is not None
        given = None if is_begun else {"messages": [{"role": "user", "content": "pay", "id": "question"}]}
        messages = agent.invoke(given, thread, durability="sync")["messages"]
    print(json.dumps([[type(one).__name__, str(one.content)] for one in messages]))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
