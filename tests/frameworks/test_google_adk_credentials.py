"""Credentials in the state of ADK's sessions are not stored, by `resumable` nor by the session service."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from framework_environments import require
from stored_secrets import assert_secret_is_not_stored
from survives import survives

require("google_adk")

from google.adk.agents import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from holdfast import SyncClient
from holdfast.errors import HoldfastWarning
from holdfast.google_adk import HoldfastSessionService, extract, resumable

KEYS = ("sk-of-a-tool-0123456789", "sk-of-the-caller-0123456789", "sk-of-the-user-0123456789", "sk-env-0123456789")
LEFT_OUT = r"state of the session has .*api_key"


class Model(BaseLlm):
    """Calls `log_in` once in each turn, then answers."""

    model: str = "fake"

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
        last = llm_request.contents[-1].parts[-1]
        if last.function_response is not None:
            part = types.Part(text=f"answer {last.function_response.response}")
        else:
            part = types.Part(function_call=types.FunctionCall(name="log_in", args={}))
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def make_agent(seen: list[Any]) -> LlmAgent:
    def log_in(tool_context: Any) -> str:
        """Log in."""
        seen.append(tool_context.state.get("api_key"))
        tool_context.state["api_key"] = KEYS[0]
        tool_context.state["crm"] = {"url": "https://crm", "headers": {"Authorization": KEYS[0]}}
        tool_context.state["user:token"] = KEYS[2]
        tool_context.state["total_tokens"] = 5
        return tool_context.state["api_key"][:6]  # the turn itself has it

    return LlmAgent(name="clerk", model=Model(), tools=[log_in])


GIVEN = {"password": KEYS[1]}
MESSAGE = types.Content(role="user", parts=[types.Part(text="log in")])


async def take_natively(service: Any, seen: list[Any]) -> Any:
    runner = Runner(app_name="clerk", agent=make_agent(seen), session_service=service)
    await service.create_session(app_name="clerk", user_id="ann", session_id="s", state=GIVEN)
    async for _ in runner.run_async(user_id="ann", session_id="s", new_message=MESSAGE):
        pass
    return await service.get_session(app_name="clerk", user_id="ann", session_id="s")


def assert_no_key_is_stored(store: str, directory: Path) -> None:
    for key in KEYS:
        assert_secret_is_not_stored(store, key, directory)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_control_adk_stores_credentials_of_the_state(tmp_path):
    asyncio.run(take_natively(SqliteSessionService(str(tmp_path / "adk.db")), []))
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("adk.db*"))
    assert all(key.encode() in stored for key in KEYS[:3])


@survives("credentials in the session's state, by their names", "are never stored; a warning names them")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_credentials_of_the_state_are_not_stored(tmp_path, monkeypatch):
    monkeypatch.setenv("GOOGLE_API_KEY", KEYS[3])
    store, seen = f"sqlite:///{tmp_path}/store.db", []
    for number in range(2):
        target = resumable(make_agent(seen), session_id="s", store=store)
        with pytest.warns(HoldfastWarning, match=LEFT_OUT):
            events = target.run(user_id="ann", new_message="log in", turn=str(number), state_delta=GIVEN)
            said = [part.text for event in events for part in event.content.parts if part.text]
        assert said == ["answer {'result': 'sk-of-'}"]
    assert seen == [None, None]  # the second turn begins without it
    assert_no_key_is_stored(store, tmp_path)
    with SyncClient.open(store) as client:
        state = client.latest("s").execution_state["state"]
    assert state == {"crm": {"url": "https://crm", "headers": {}}, "total_tokens": 5}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_session_service_and_extract_store_no_credentials_either(tmp_path):
    async def main() -> Any:
        service = HoldfastSessionService(store)
        try:
            return await take_natively(service, [])
        finally:
            await service.close()

    store = f"sqlite:///{tmp_path}/store.db"
    with pytest.warns(HoldfastWarning, match="state of the session has"):
        native = asyncio.run(main())
    native.state["api_key"] = KEYS[0]
    with pytest.warns(HoldfastWarning, match="state of the session has"), SyncClient.open(store) as client:
        client.save_checkpoint(extract(native, agent_id="clerk", session_id="extracted"))
    assert_no_key_is_stored(store, tmp_path)
