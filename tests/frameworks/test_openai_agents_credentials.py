"""Credentials that a run of the OpenAI Agents SDK is given are not stored."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from framework_environments import require
from stored_secrets import assert_secret_is_not_stored
from survives import survives

require("openai_agents")

from agents import Agent, ModelSettings, RunConfig, RunContextWrapper, Runner, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call

from holdfast import SyncClient
from holdfast.errors import ApprovalPendingError
from holdfast.openai_agents import resumable

KEYS = ("sk-of-the-context-0123456789", "sk-of-a-header-0123456789", "sk-env-0123456789")
CONTEXT = {"api_key": KEYS[0]}
CONFIG = RunConfig(tracing_disabled=True)


def make_agent(*answers: Any) -> Agent[Any]:
    @function_tool(needs_approval=True)
    def pay(context: RunContextWrapper[Any]) -> str:
        """Pay."""
        return context.context["api_key"][:6]

    settings = ModelSettings(extra_headers={"Authorization": KEYS[1]}, extra_args={"api_key": KEYS[1]})
    return Agent("clerk", model=ScriptedModel([[one] for one in answers]), tools=[pay], model_settings=settings)


def test_control_the_sdk_writes_the_context_into_its_state():
    async def main() -> None:
        agent = make_agent(function_call("pay", {}, call_id="c1"))
        result = await Runner.run(agent, "pay", context=CONTEXT, run_config=CONFIG)
        assert KEYS[0] in json.dumps(result.to_state().to_json())

    asyncio.run(main())


@survives("the context, and settings with headers", "are never stored")
def test_credentials_of_a_run_that_waits_and_continues_are_not_stored(tmp_path, monkeypatch):
    async def run(*answers: Any) -> Any:
        target = resumable(make_agent(*answers), session_id="s", store=store)
        return await target.run("pay", context=CONTEXT, run_config=CONFIG)

    monkeypatch.setenv("OPENAI_API_KEY", KEYS[2])
    store = f"sqlite:///{tmp_path}/store.db"
    with pytest.raises(ApprovalPendingError):
        asyncio.run(run(function_call("pay", {}, call_id="c1")))
    for key in KEYS:
        assert_secret_is_not_stored(store, key, tmp_path)
    with SyncClient.open(store) as client:
        [asked] = client.approvals("s")
        client.decide(asked.approval_id, "approve", by="ann")
    assert asyncio.run(run(assistant_message("paid"))).final_output == "paid"
    for key in KEYS:
        assert_secret_is_not_stored(store, key, tmp_path)
