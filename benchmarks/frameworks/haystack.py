"""Haystack: an agent that looks things up, alone, with the conversation in a file, and with `resumable`."""

import json
import os
from pathlib import Path
from typing import Any

from benchmarks.frameworks.workload import TOOLS, Take, look, prose

DISTRIBUTION = "haystack-ai"
IS_BLOCKING = True
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # read when Haystack is imported


def haystack_agent() -> Any:
    from haystack.components.agents import Agent
    from haystack.components.generators.chat import MockChatGenerator
    from haystack.dataclasses import ChatMessage, ToolCall
    from haystack.tools import create_tool_from_function

    def answer(messages: Any) -> Any:
        if messages[-1].is_from("tool"):
            return prose(1500)
        call = ToolCall("look", {"question": prose(60)}, id=f"call-{len(messages)}")
        return ChatMessage.from_assistant(tool_calls=[call])

    return Agent(chat_generator=MockChatGenerator(response_fn=answer), tools=[create_tool_from_function(look)])


def run_alone(where: Path | None) -> Take:
    """The conversation as JSON, whole: agents of Haystack have no store."""
    from haystack.dataclasses import ChatMessage

    agent, said = haystack_agent(), []

    async def take(prompt: str) -> None:
        said[:] = agent.run([*said, ChatMessage.from_user(prompt)])["messages"]
        if where is not None:
            (where / "conversation.json").write_text(json.dumps([one.to_dict() for one in said]))

    return take


def run_resumable(client: Any) -> Take:
    from haystack.dataclasses import ChatMessage

    from holdfast.haystack import resumable

    agent = resumable(haystack_agent(), session_id="s", store=client, tools=TOOLS)

    async def take(prompt: str) -> None:
        agent.run([ChatMessage.from_user(prompt)])

    return take
