"""Agents and turns that tests of Google ADK share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.events.event import Event
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.genai import types

from holdfast.adapters.base import session as sessions


def restart() -> None:
    """Forget what this process has finished, as a new process would."""
    sessions._finished.clear()


class Killed(BaseException):
    """Stands for the end of the process."""


class FakeModel(BaseLlm):
    """Answers with one entry after the other: a text, a call `(tool, arguments)`, or a list of calls."""

    model: str = "fake"
    answers: list[Any]
    asked: list[Any]

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncIterator[LlmResponse]:
        self.asked.append(llm_request)
        if not self.answers:
            raise Killed
        answer = self.answers.pop(0)
        parts = [part_of(one) for one in (answer if isinstance(answer, list) else [answer])]
        if stream:
            yield LlmResponse(content=types.Content(role="model", parts=parts), partial=True)
        yield LlmResponse(content=types.Content(role="model", parts=parts))


def part_of(answer: Any) -> types.Part:
    if isinstance(answer, str):
        return types.Part(text=answer)
    return types.Part(function_call=types.FunctionCall(name=answer[0], args=answer[1]))


def agent(*answers: Any, tools: Any = (), name: str = "clerk", **options: Any) -> LlmAgent:
    model = FakeModel(answers=list(answers), asked=[])
    return LlmAgent(name=name, model=model, tools=list(tools), **options)


def run(target: Any, text: Any, **options: Any) -> list[Event]:
    return list(target.run(user_id="ann", new_message=text, **options))


def picture() -> types.Part:
    return types.Part(inline_data=types.Blob(mime_type="image/png", data=bytes(range(256))))
