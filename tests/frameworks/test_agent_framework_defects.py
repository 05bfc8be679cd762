"""What agent-framework's own stores lose or repeat, and ours do not; its own way is the control."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from campaign import SOAK
from framework_environments import require
from prose import PROSE
from survives import survives

require("agent_framework")

from agent_framework import (
    Agent,
    AgentExecutor,
    FileCheckpointStorage,
    FileHistoryProvider,
    WorkflowBuilder,
    tool,
)
from agent_framework_model import FunctionClient, call, results_since_user

from holdfast import Client
from holdfast.agent_framework import HoldfastCheckpointStorage, resumable

TURNS = 300 if SOAK else 60


def make_agent(client: FunctionClient, calls: list[str], **options: Any) -> Agent:
    @tool
    async def look() -> str:
        """Look it up."""
        calls.append("look")
        return "sunny"

    return Agent(client, name="guide", tools=[look], **options)


def die_after_tool(messages: Sequence[Any]) -> Any:
    if results_since_user(messages):
        raise ConnectionError("killed")
    return [call("look")]


def finish(messages: Sequence[Any]) -> Any:
    results = results_since_user(messages)
    return f"it is {results[-1]}" if results else [call("look")]


def kinds(messages: Sequence[Any]) -> list[str]:
    return [content.type for message in messages for content in message.contents]


@survives("finished tool calls", "their results are replayed")
@pytest.mark.filterwarnings("ignore:.FILE_HISTORY.*experimental")
@pytest.mark.parametrize("is_per_call", [False, True])
def test_a_run_that_was_cut_off_goes_on_and_each_call_is_seen_once(tmp_path, is_per_call):
    url = f"sqlite:///{tmp_path}/store.db"

    async def control() -> tuple[list[str], list[str]]:
        calls: list[str] = []
        for answer in (die_after_tool, finish):
            history = FileHistoryProvider(tmp_path / "history")
            agent = make_agent(
                FunctionClient(answer),
                calls,
                context_providers=[history],
                require_per_service_call_history_persistence=is_per_call,
            )
            session = agent.create_session(session_id="chat")
            try:
                await agent.run("weather?", session=session)
            except ConnectionError:
                continue
        return calls, kinds(agent.client.requests[0])

    async def main() -> tuple[list[str], list[str]]:
        calls: list[str] = []
        with pytest.raises(ConnectionError):
            await resumable(make_agent(FunctionClient(die_after_tool), calls), session_id="s", store=url).run(
                "weather?"
            )
        agent = make_agent(FunctionClient(finish), calls)
        assert (await resumable(agent, session_id="s", store=url).run("weather?")).text == "it is sunny"
        assert len(agent.client.requests) == 1
        return calls, kinds(agent.client.requests[-1])

    repeated, seen = asyncio.run(control())
    assert repeated == ["look", "look"]  # the tool was run again
    if is_per_call:
        assert seen.count("function_call") > seen.count("function_result")  # a call without an answer
    assert asyncio.run(main()) == (["look"], ["text", "function_call", "function_result"])


def test_checkpoints_of_workflows_have_no_pickle(tmp_path):
    def make() -> Any:
        agent = AgentExecutor(Agent(FunctionClient(lambda _: "hello"), name="a"))
        return WorkflowBuilder(start_executor=agent, name="greet").build()

    async def main() -> None:
        await make().run("hi", checkpoint_storage=FileCheckpointStorage(tmp_path / "control"))
        control = "".join(path.read_text() for path in (tmp_path / "control").glob("*"))
        assert "__pickled__" in control
        storage = HoldfastCheckpointStorage(store=f"sqlite:///{tmp_path}/store.db")
        await make().run("hi", checkpoint_storage=storage)
        await resumable(make(), session_id="s", store=f"sqlite:///{tmp_path}/store.db").run("hi")
        await storage.close()
        async with Client.open(f"sqlite:///{tmp_path}/store.db") as client:
            for session in await client.session_ids():
                for entry in await client.timeline(session):
                    checkpoint = await client.restore(entry.checkpoint_id)
                    json.dumps(checkpoint.execution_state)  # plain data only
                    assert "pickle" not in repr(checkpoint.execution_state)

    asyncio.run(main())


def test_a_long_conversation_is_stored_once(tmp_path: Path):
    chance = random.Random(7)

    @tool
    async def look(question: str) -> str:
        """Look it up."""
        return make_text(chance, 3500)

    def answer(messages: Sequence[Any]) -> Any:
        if results_since_user(messages):
            return make_text(chance, 1500)
        return [call("look", f"call-{len(messages)}", question=make_text(chance, 60))]

    agent = Agent(FunctionClient(answer), name="a", tools=[look])

    async def main() -> tuple[int, int]:
        async with Client.open(f"sqlite:///{tmp_path}/store.db", durability="fast") as client:
            target = resumable(agent, session_id="s", store=client, tools={"look": "read"})
            for number in range(TURNS):
                await target.run(f"{number} {make_text(chance, 200)}")
            state = (await client.latest("s")).execution_state
        messages = state["messages"]
        return len(json.dumps(messages)), len(messages)

    transcript, count = asyncio.run(main())
    assert count == 4 * TURNS
    stored = sum(one.stat().st_size for one in tmp_path.glob("store.db*"))
    assert stored <= 1.5 * transcript, f"{stored} bytes for a transcript of {transcript}"


def make_text(chance: random.Random, length: int) -> str:
    """Return English prose, as people and models write it."""
    start = chance.randrange(len(PROSE) - length)
    return PROSE[start : start + length]
