"""Credentials that a run of Pydantic AI is given are not stored."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from framework_environments import require
from stored_secrets import assert_secret_is_not_stored
from survives import survives

require("pydantic_ai")

from pydantic_ai import Agent, ModelResponse, RunContext, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

from holdfast.pydantic_ai import resumable

KEYS = ("sk-of-the-deps-0123456789", "sk-of-a-header-0123456789", "sk-env-0123456789")


@dataclass
class Deps:
    api_key: str


@survives("dependencies, and settings with headers", "are never stored")
def test_credentials_of_dependencies_settings_and_the_environment_are_not_stored(tmp_path, monkeypatch):
    settings_seen: list[Any] = []

    def answer(messages: Any, info: Any) -> ModelResponse:
        settings_seen.append(info.model_settings["extra_headers"]["Authorization"])
        last = messages[-1].parts[-1]
        return ModelResponse(
            [TextPart(f"it is {last.content}") if isinstance(last, ToolReturnPart) else ToolCallPart("connect", {})]
        )

    agent = Agent(FunctionModel(answer), name="clerk", deps_type=Deps)

    @agent.tool
    def connect(context: RunContext[Deps]) -> str:
        return context.deps.api_key[:6]

    monkeypatch.setenv("OPENAI_API_KEY", KEYS[2])
    store = f"sqlite:///{tmp_path}/store.db"
    given = {"deps": Deps(KEYS[0]), "model_settings": {"extra_headers": {"Authorization": KEYS[1]}}}
    for number in range(2):
        result = asyncio.run(resumable(agent, session_id="s", store=store).run("?", turn=str(number), **given))
        assert result.output == "it is sk-of-"
    assert settings_seen == [KEYS[1]] * 4
    for key in KEYS:
        assert_secret_is_not_stored(store, key, tmp_path)
