"""What Strands' own session managers lose or repeat, and ours does not; its own way is the control."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from crash_kit import Finished, run_until_done
from framework_environments import require
from prose import PAGE
from survives import survives

require("strands")

from strands import Agent, tool
from strands.agent.conversation_manager import NullConversationManager
from strands_model import FunctionModel, call, results_since_user

from holdfast import Client
from holdfast.strands import resumable

TURNS = 300


def take(places: Any, way: str) -> Finished:
    store, directory = places.make(way.replace(" ", "-"))
    (directory / "way").write_text(way)
    ended = run_until_done("strands_control", store, directory)
    assert ended.lives == 2
    return ended


@survives("an undeclared tool under way", "not repeated; the model reads that it was interrupted")
@pytest.mark.parametrize(
    ("way", "models", "payments"),
    [
        ("invocation", 3, 2),  # the default: the whole run is lost, and made again
        ("message", 2, 2),  # the answer of the model is kept; the tool that was under way is run again
        ("resumable", 2, 1),
    ],
)
def test_a_payment_that_was_under_way_is_not_made_again(sqlite_places, way, models, payments):
    ended = take(sqlite_places, way)
    assert ended.outcome["calls"] == {"model": models, "pay": payments}
    if way == "resumable":
        assert "its outcome is unknown" in ended.outcome["said"]


@survives("a node under way", "continues with its recorded calls")
@pytest.mark.parametrize(("way", "models", "payments"), [("graph", 5, 3), ("resumable graph", 4, 2)])
def test_a_node_of_a_graph_that_was_cut_off_keeps_its_finished_calls(sqlite_places, way, models, payments):
    ended = take(sqlite_places, way)
    assert ended.outcome["calls"] == {"model": models, "pay": payments}


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

    agent = Agent(
        FunctionModel(answer), tools=[look], callback_handler=None, conversation_manager=NullConversationManager()
    )

    async def main() -> tuple[int, int]:
        async with Client.open(f"sqlite:///{tmp_path}/store.db", durability="fast") as client:
            target = resumable(agent, session_id="s", store=client, tools={"look": "read"})
            for number in range(TURNS):
                await target.invoke_async(f"{number} {make_text(chance, 200)}")
            messages = (await client.latest("s")).execution_state["messages"]
        return len(json.dumps(messages)), len(messages)

    transcript, count = asyncio.run(main())
    assert count == 4 * TURNS
    stored = sum(one.stat().st_size for one in tmp_path.glob("store.db*"))
    assert stored <= 1.5 * transcript, f"{stored} bytes for a transcript of {transcript}"


def make_text(chance: random.Random, length: int) -> str:
    """Return English prose, as people and models write it."""
    start = chance.randrange(len(PAGE) - length)
    return PAGE[start : start + length]
