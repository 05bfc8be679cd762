"""A deep agent that is killed in the middle of its work, and goes on with its files. No network, no key.

deepagents keeps the agent's files in the state of its graph, so they are in the checkpoint. The changed line is
`checkpointer=`.

    $ python examples/frameworks/deepagents_agent.py --crash
    the model is asked for step 1
    the model is asked for step 2
    [killed]
    $ python examples/frameworks/deepagents_agent.py
    the model is asked for step 2
    the model is asked for step 3
    I have noted: kelp
"""

from __future__ import annotations

import os
import signal
import sys

from deepagents import create_deep_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from holdfast.langgraph import HoldfastSaver

CALLS = {
    1: {"name": "write_file", "args": {"file_path": "/notes.md", "content": "kelp"}, "id": "call-1"},
    2: {"name": "read_file", "args": {"file_path": "/notes.md"}, "id": "call-2"},
}


class ScriptedModel(BaseChatModel):
    """A model that writes a file, reads it, and ends. Its answer depends on the conversation only."""

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
            answer = AIMessage("", tool_calls=[CALLS[step]])
        else:
            answer = AIMessage(f"I have noted: {messages[-1].content.splitlines()[-1]}")
        return ChatResult(generations=[ChatGeneration(message=answer)])


def main() -> None:
    with HoldfastSaver.from_sqlite(".holdfast/store.db") as saver:
        agent = create_deep_agent(model=ScriptedModel(), checkpointer=saver)  # the changed line
        thread = {"configurable": {"thread_id": "notes"}}
        is_begun = agent.get_state(thread).created_at is not None
        given = None if is_begun else {"messages": [{"role": "user", "content": "note: kelp"}]}
        result = agent.invoke(given, thread, durability="sync")  # saved before the next step begins
        print(result["messages"][-1].content)


if __name__ == "__main__":
    main()
