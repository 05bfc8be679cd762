"""Agents and turns that tests of Pydantic AI share."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RequestUsage,
)
from pydantic_ai.messages import TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from holdfast.adapters.base import session as sessions
from holdfast.pydantic_ai import resumable

Answer = str | list[tuple[str, dict[str, Any]]]


class Killed(BaseException):
    """Stands for the end of the process."""


class Script:
    """A model that answers the nth request of a turn with the nth answer of a plan, and counts."""

    def __init__(self, *plan: Answer) -> None:
        self.plan = plan
        self.asked = 0
        self.seen: list[list[str]] = []
        self.model = FunctionModel(self._answer, stream_function=self._stream)

    def _next(self, messages: list[ModelMessage]) -> ModelResponse:
        self.asked += 1
        requests = [one for one in messages if isinstance(one, ModelRequest)]
        begins = max(n for n, one in enumerate(requests) if isinstance(one.parts[0], UserPromptPart))
        returned = [part for one in requests[begins:] for part in one.parts if isinstance(part, ToolReturnPart)]
        self.seen.append([part.model_response_str() for part in returned])
        step = len(requests) - begins - 1
        wanted = self.plan[step]
        if isinstance(wanted, str):
            return ModelResponse([TextPart(wanted)], usage=RequestUsage(input_tokens=1, output_tokens=1))
        turn = len([one for one in requests if isinstance(one.parts[0], UserPromptPart)])
        calls = [
            ToolCallPart(name, arguments, tool_call_id=f"call-{turn}-{step}-{number}")
            for number, (name, arguments) in enumerate(wanted)
        ]
        return ModelResponse(calls, usage=RequestUsage(input_tokens=1, output_tokens=1))

    def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return self._next(messages)

    async def _stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        for number, part in enumerate(self._next(messages).parts):
            if isinstance(part, TextPart):
                yield part.content
            else:
                yield {number: DeltaToolCall(part.tool_name, json.dumps(part.args), tool_call_id=part.tool_call_id)}


def make_agent(script: Script, *tools: Any, **options: Any) -> Agent[None, Any]:
    return Agent(script.model, name="clerk", tools=tools, **options)


def restart() -> None:
    """Forget the turns that this process has finished, as a new one has."""
    sessions._finished.clear()


def run_sync(agent: Agent[None, Any], url: str, prompt: Any = "pay", **options: Any) -> Any:
    """Take a turn as a new process does."""
    restart()
    keywords = {name: options.pop(name) for name in ("tools", "session_id") if name in options}
    return resumable(agent, store=url, **{"session_id": "s", **keywords}).run_sync(prompt, **options)


# -- turns -------------------------------------------------------------------------------------------------------------


class Receipt(BaseModel):
    invoice: int
    paid: bool = True


# -- tools -------------------------------------------------------------------------------------------------------------


def kill_at(number: int) -> tuple[list[int], Callable[[], None]]:
    calls: list[int] = []

    def count() -> None:
        calls.append(len(calls) + 1)
        if len(calls) == number:
            raise Killed

    return calls, count


def decide(url: str, *answers: str) -> None:
    """Answer the open questions as another process does: by the command line."""
    for answer in answers:
        command = [sys.executable, "-m", "holdfast", "--store", url]
        listed = subprocess.run([*command, "approvals", "--json"], check=True, capture_output=True, text=True)
        waiting = json.loads(listed.stdout)
        first = min(
            waiting if isinstance(waiting, list) else waiting["approvals"], key=lambda one: str(one["arguments"])
        )
        decided = [*command, answer, first["approval_id"], "--by", "ann", "--note", "because"]
        said = subprocess.run([*decided, *(["--yes"] if answer == "approve" else [])], capture_output=True, check=False)
        assert said.returncode == 0, said.stderr
