"""What AutoGen's own states lose, and ours do not; AutoGen's own way is the control."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from framework_environments import require
from prose import PAGE
from survives import survives

require("autogen")

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_agentchat.tools import AgentTool
from autogen_core.models import FunctionExecutionResultMessage
from autogen_model import FunctionModel, call

from holdfast import Client
from holdfast.autogen import resumable

TURNS = 300


def make_team(*, is_broken: bool) -> RoundRobinGroupChat:
    """Return a team of three; the second one's model may be away."""

    def speak(name: str) -> FunctionModel:
        def answer(_: Any) -> str:
            if is_broken and name == "b":
                raise ConnectionError("away")
            return f"I am {name}"

        return FunctionModel(answer)

    return RoundRobinGroupChat([AssistantAgent(name, speak(name)) for name in "abc"], max_turns=3)


def speakers(result: Any) -> list[str]:
    return [message.source for message in result.messages]


@survives("the position in a team", "the speaker that failed speaks again")
def test_the_speaker_that_failed_speaks_again(tmp_path):
    url = f"sqlite:///{tmp_path}/store.db"

    async def control() -> list[str]:
        team = make_team(is_broken=True)
        with pytest.raises(RuntimeError, match="away"):
            await team.run(task="go")
        state = await team.save_state()
        restored = make_team(is_broken=False)
        await restored.load_state(state)
        return speakers(await restored.run())

    async def main() -> list[str]:
        with pytest.raises(RuntimeError, match="away"):
            await resumable(make_team(is_broken=True), session_id="s", store=url).run(task="go")
        return speakers(await resumable(make_team(is_broken=False), session_id="s", store=url).run(task="go"))

    assert asyncio.run(control())[0] == "c"  # b is skipped
    assert asyncio.run(main()) == ["user", "a", "b", "c"]


def make_clerk() -> AssistantAgent:
    """Return an agent that asks another one, which says how many messages it remembers."""
    helper = AssistantAgent("helper", FunctionModel(lambda messages: f"I know {len(messages) - 1}"))

    def answer(messages: Sequence[Any]) -> Any:
        last = messages[-1]
        return (
            last.content[0].content if isinstance(last, FunctionExecutionResultMessage) else [call("helper", task="?")]
        )

    tool = AgentTool(helper, return_value_as_last_message=True)
    return AssistantAgent("clerk", FunctionModel(answer), tools=[tool], max_tool_iterations=2)


@survives("agents that are tools (`AgentTool`, `TeamTool`)", "their calls and their memory")
def test_an_agent_that_is_a_tool_remembers(tmp_path):
    url = f"sqlite:///{tmp_path}/store.db"

    async def control() -> list[str]:
        clerk = make_clerk()
        said = [(await clerk.run(task="a")).messages[-1].content]
        restored = make_clerk()
        await restored.load_state(await clerk.save_state())
        return [*said, (await restored.run(task="b")).messages[-1].content]

    async def main() -> list[str]:
        return [
            (await resumable(make_clerk(), session_id="s", store=url).run(task=task)).messages[-1].content
            for task in "ab"
        ]

    assert asyncio.run(control()) == ["I know 1", "I know 1"]
    assert asyncio.run(main()) == ["I know 1", "I know 3"]


def test_a_long_conversation_is_stored_once(tmp_path: Path):
    chance = random.Random(7)

    async def look(question: str) -> str:
        """Look it up."""
        return make_text(chance, 3500)

    def answer(messages: Sequence[Any]) -> Any:
        if isinstance(messages[-1], FunctionExecutionResultMessage):
            return make_text(chance, 1500)
        return [call("look", f"call-{len(messages)}", question=make_text(chance, 60))]

    path = tmp_path / "store.db"
    agent = AssistantAgent("a", FunctionModel(answer), tools=[look], max_tool_iterations=2)
    control = 0

    async def main() -> int:
        nonlocal control
        async with Client.open(f"sqlite:///{path}", durability="fast") as client:
            team = resumable(agent, session_id="s", store=client, tools={"look": "read"})
            for number in range(TURNS):
                await team.run(task=f"{number} {make_text(chance, 200)}")
                if number % 10 == 0:
                    control += len(json.dumps(await agent.save_state()))
            state = (await client.latest("s")).execution_state
        return len(json.dumps(state["messages"]))

    transcript = asyncio.run(main())
    stored = sum(one.stat().st_size for one in tmp_path.glob("store.db*"))
    assert stored <= 1.5 * transcript, f"{stored} bytes for a transcript of {transcript}"
    assert control > 10 * transcript  # AutoGen's own state, even if it is saved after each tenth turn only


def make_text(chance: random.Random, length: int) -> str:
    """Return English prose, as people and models write it."""
    start = chance.randrange(len(PAGE) - length)
    return PAGE[start : start + length]
