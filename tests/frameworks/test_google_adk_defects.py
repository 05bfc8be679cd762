"""What ADK's own persistence lacks, and what a long conversation takes."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest
from framework_environments import require
from prose import PAGE

require("google_adk")

from google.adk.apps.app import App, ResumabilityConfig
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types
from google_adk_events import responses, sender
from google_adk_turns import Killed, agent, restart, run

from holdfast import Client, Effect
from holdfast.adapters.base import session as sessions
from holdfast.google_adk import resumable

SEND = ("send", {"to": "bob"})


@pytest.fixture(autouse=True)
def as_a_new_process() -> None:
    sessions._finished.clear()


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


# -- what ADK's own persistence lacks, and bytes -----------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.EXPERIMENTAL. ResumabilityConfig:UserWarning")
def test_a_tool_that_was_under_way_runs_again_with_adks_own_resume_only(store):
    """ADK's resume by invocation carries out the open call again; ours asks the probe, and does not."""
    called: list[str] = []

    async def control() -> None:
        service = InMemorySessionService()

        def make(*answers: Any, kill: bool) -> Runner:
            target = agent(*answers, tools=[sender(called, kill=kill)])
            config = ResumabilityConfig(is_resumable=True)
            app = App(name="office", root_agent=target, resumability_config=config)
            return Runner(app=app, session_service=service, auto_create_session=True)

        message = types.Content(role="user", parts=[types.Part(text="send it")])
        with pytest.raises(Killed):
            async for _ in make(SEND, kill=True).run_async(user_id="ann", session_id="s", new_message=message):
                pass
        session = await service.get_session(app_name="office", user_id="ann", session_id="s")
        invocation = session.events[-1].invocation_id
        async for _ in make("ok", kill=False).run_async(user_id="ann", session_id="s", invocation_id=invocation):
            pass

    asyncio.run(control())
    assert called == ["bob", "bob"]
    called.clear()
    tools = {"send": Effect("irreversible", key="to")}
    target = resumable(agent(SEND, tools=[sender(called, kill=True)]), session_id="s", store=store, tools=tools)
    with pytest.raises(Killed):
        run(target, "send it")
    restart()
    target = resumable(agent("ok", tools=[sender(called)]), session_id="s", store=store, tools=tools)
    assert "outcome is unknown" in json.dumps(responses(run(target, "send it")))
    assert called == ["bob"]


def test_a_long_conversation_is_stored_once(tmp_path):
    """After 300 turns of seven kilobytes, at most one and a half times the conversation."""
    turns, words, chance = 300, PAGE.split(), random.Random(7)

    def text() -> str:
        return " ".join(chance.choices(words, k=600))

    async def story() -> tuple[int, int]:
        async with Client.sqlite(tmp_path / "long.db", durability="fast") as client:
            target = resumable(agent(*(text() for _ in range(turns))), session_id="s", store=client)
            for number in range(turns):
                async for _ in target.run_async(user_id="ann", new_message=text(), turn=str(number)):
                    pass
            await client.gc()
            events = (await client.latest("s")).execution_state["messages"]
        return len(json.dumps(events)), sum(one.stat().st_size for one in tmp_path.glob("long.db*"))

    transcript, stored = asyncio.run(story())
    assert transcript > 1_000_000
    assert stored <= 1.5 * transcript, (stored, transcript)
