"""Credentials in sessions and workflows of agent-framework are not stored."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from framework_environments import require
from stored_secrets import assert_secret_is_not_stored
from survives import survives

require("agent_framework")

from agent_framework import Agent, ContextProvider, Executor, Workflow, WorkflowBuilder, WorkflowContext, handler
from agent_framework_model import FunctionClient

from holdfast import SyncClient
from holdfast.agent_framework import extract, resumable
from holdfast.errors import HoldfastWarning

KEYS = ("sk-of-a-provider-0123456789", "sk-of-a-header-0123456789", "sk-env-0123456789", "sk-of-an-executor-0123456789")


class Login(ContextProvider):
    """Keeps a login in the session, as providers keep what they need in the next turn."""

    def __init__(self) -> None:
        super().__init__("login")
        self.seen: list[Any] = []

    async def before_run(self, *, agent: Any, session: Any, context: Any, state: dict[str, Any]) -> None:
        self.seen.append((state.get("api_key"), state.get("visits", 0)))
        state["api_key"] = KEYS[0]
        state["visits"] = state.get("visits", 0) + 1


def make_agent(login: Login) -> Agent:
    client = FunctionClient(lambda messages: f"said {len(messages)}")
    options = {"extra_headers": {"Authorization": KEYS[1]}}
    return Agent(client, name="clerk", context_providers=[login], default_options=options)


class Connect(Executor):
    @handler
    async def connect(self, text: str, ctx: WorkflowContext[str, str]) -> None:
        ctx.set_state("api_key", KEYS[3])
        ctx.set_state("place", "here")
        await ctx.yield_output(text)


def make_workflow() -> Workflow:
    return WorkflowBuilder(name="w", start_executor=Connect("connect")).build()


def assert_no_key_is_stored(store: str, directory: Path) -> None:
    for key in KEYS:
        assert_secret_is_not_stored(store, key, directory)


def test_control_the_framework_writes_credentials_into_its_sessions_and_checkpoints():
    async def main() -> None:
        agent = make_agent(Login())
        session = agent.create_session()
        await agent.run("hello", session=session)
        assert KEYS[0] in json.dumps(session.to_dict())
        workflow = make_workflow()
        await workflow.run("hello")
        assert KEYS[3] in repr((await workflow._runner.build_checkpoint()).to_dict())

    asyncio.run(main())


@survives("credentials in a session's state, by their names", "never stored; a warning names them")
def test_credentials_of_a_session_are_not_stored(tmp_path, monkeypatch):
    async def main() -> None:
        for number in range(2):
            target = resumable(make_agent(login), session_id="s", store=store)
            with pytest.warns(HoldfastWarning, match="state of the session has .*api_key"):
                await target.run("hello", turn=str(number))
        agent = make_agent(Login())
        session = agent.create_session()
        await agent.run("hello", session=session)
        with pytest.warns(HoldfastWarning, match="api_key"), SyncClient.open(store) as client:
            client.save_checkpoint(extract(session, agent_id="clerk", session_id="extracted"))

    monkeypatch.setenv("OPENAI_API_KEY", KEYS[2])
    store, login = f"sqlite:///{tmp_path}/store.db", Login()
    asyncio.run(main())
    assert login.seen == [(None, 0), (None, 1)]  # what else the provider keeps is there
    assert_no_key_is_stored(store, tmp_path)


@survives("credentials in a workflow's state, by their names", "never stored; a warning names them")
def test_credentials_of_a_workflow_are_not_stored(tmp_path):
    async def main() -> None:
        with pytest.warns(HoldfastWarning, match="state of the workflow has .*api_key"):
            result = await resumable(make_workflow(), session_id="s", store=store).run("hello")
        assert result.get_outputs() == ["hello"]

    store = f"sqlite:///{tmp_path}/store.db"
    asyncio.run(main())
    assert_no_key_is_stored(store, tmp_path)
    with SyncClient.open(store) as client:
        assert client.latest("s").execution_state["checkpoint"]["state"]["place"] == "here"
