"""CrewAI: an agent that looks things up, alone, with the framework's own store, and with `resumable`."""

import json
from pathlib import Path
from typing import Any

from benchmarks.frameworks.workload import TOOLS, Take, look, prose

DISTRIBUTION = "crewai"
IS_BLOCKING = True


def crewai_agent() -> Any:
    from crewai import Agent
    from crewai.events.event_listener import event_listener
    from crewai.tools import tool
    from crewai_model import FunctionModel

    event_listener.formatter.console.quiet = True  # it prints a panel for each call of a tool

    def answer(messages: Any) -> Any:
        if messages[-1]["role"] == "tool":
            return prose(1500)
        call = {"name": "look", "arguments": json.dumps({"question": prose(60)})}
        return [{"id": f"call-{len(messages)}", "type": "function", "function": call}]

    return Agent(
        role="a", goal="look", backstory="looks", llm=FunctionModel.make(answer), tools=[tool(look)], verbose=False
    )


def run_alone(where: Path | None) -> Take:
    """Nothing: agents of CrewAI have no store. The program keeps the conversation."""
    agent, said = crewai_agent(), []

    async def take(prompt: str) -> None:
        said.append({"role": "user", "content": prompt})
        output = await agent.kickoff_async(said)
        said.extend(output.messages[1 + len(said) :])

    return take


def run_resumable(client: Any) -> Take:
    from holdfast.crewai import resumable

    return resumable(crewai_agent(), session_id="s", store=client, tools=TOOLS).kickoff_async
