"""AutoGen: an agent that looks things up, alone, with the framework's own store, and with `resumable`."""

import json
from pathlib import Path
from typing import Any

from benchmarks.frameworks.workload import TOOLS, Take, look, prose

DISTRIBUTION = "autogen-agentchat"
IS_BLOCKING = False


def autogen_agent() -> Any:
    from autogen_agentchat.agents import AssistantAgent
    from autogen_core import FunctionCall
    from autogen_core.models import FunctionExecutionResultMessage
    from autogen_model import FunctionModel

    def answer(messages: Any) -> Any:
        if isinstance(messages[-1], FunctionExecutionResultMessage):
            return prose(1500)
        return [FunctionCall(id=f"call-{len(messages)}", name="look", arguments=json.dumps({"question": prose(60)}))]

    return AssistantAgent("a", FunctionModel(answer), tools=[look], max_tool_iterations=2)


def run_alone(where: Path | None) -> Take:
    """`save_state` to a file, after each turn."""
    agent = autogen_agent()

    async def take(prompt: str) -> None:
        await agent.run(task=prompt)
        if where is not None:
            (where / "state.json").write_text(json.dumps(await agent.save_state()))

    return take


def run_resumable(client: Any) -> Take:
    from holdfast.autogen import resumable

    team = resumable(autogen_agent(), session_id="s", store=client, tools=TOOLS)
    return lambda prompt: team.run(task=prompt)
