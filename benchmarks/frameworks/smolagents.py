"""smolagents: an agent that looks things up, alone, and with `resumable`."""

from pathlib import Path
from typing import Any

from benchmarks.frameworks.workload import TOOLS, Take, look, prose

DISTRIBUTION = "smolagents"
IS_BLOCKING = True


def smolagents_agent() -> Any:
    from rich.console import Console
    from smolagents import AgentLogger, LogLevel, Tool, ToolCallingAgent
    from smolagents_model import FunctionModel, since_task

    class Look(Tool):
        name, description, output_type = "look", "Looks.", "string"
        inputs = {"question": {"type": "string", "description": "It."}}  # noqa: RUF012 - as smolagents wants it

        def forward(self, question: str) -> str:
            return look(question)

    def answer(messages: Any) -> Any:
        if len(since_task(messages)) > 1:
            return [("final_answer", {"answer": prose(1500)})]
        return [("look", {"question": prose(60)})]

    logger = AgentLogger(LogLevel.OFF, Console(quiet=True))
    return ToolCallingAgent(tools=[Look()], model=FunctionModel(answer), logger=logger)


def run_alone(where: Path | None) -> Take:
    """Nothing: smolagents has no store. The agent keeps the conversation."""
    agent = smolagents_agent()

    async def take(prompt: str) -> None:
        agent.run(prompt, reset=False)

    return take


def run_resumable(client: Any) -> Take:
    from holdfast.smolagents import resumable

    agent = resumable(smolagents_agent(), session_id="s", store=client, tools=TOOLS)

    async def take(prompt: str) -> None:
        agent.run(prompt, reset=False)

    return take
