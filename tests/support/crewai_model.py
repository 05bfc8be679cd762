"""A model for CrewAI: a function of its messages.

Import it before CrewAI: it turns telemetry off."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from crash_kit import SETTINGS

os.environ |= {name: value for name, value in SETTINGS.items() if name.startswith(("CREWAI_", "OTEL_", "ANONYMIZED"))}
os.environ.setdefault("CREWAI_STORAGE_DIR", tempfile.mkdtemp(prefix="holdfast-crewai-"))

from crewai.llms.base_llm import BaseLLM
from pydantic import PrivateAttr


class FunctionModel(BaseLLM):
    """Answers with what the function makes of the messages: a text, or calls. `asked` counts the requests."""

    asked: int = 0
    _answer: Callable[[Sequence[Any]], Any] = PrivateAttr()
    _has_tools: bool = PrivateAttr(default=True)

    @classmethod
    def make(cls, answer: Callable[[Sequence[Any]], Any], *, has_tools: bool = True, **options: Any) -> FunctionModel:
        made = cls(model="function", **options)
        made._answer, made._has_tools = answer, has_tools
        return made

    def call(self, messages: Any, *_: Any, **__: Any) -> Any:
        self.asked += 1
        self._track_token_usage_internal({"prompt_tokens": 10, "completion_tokens": 5})
        return self._answer([{"role": "user", "content": messages}] if isinstance(messages, str) else messages)

    async def acall(self, *args: Any, **kwargs: Any) -> Any:
        return self.call(*args, **kwargs)

    def supports_function_calling(self) -> bool:
        return self._has_tools

    def get_input_tokens_count(self, *_: Any, **__: Any) -> int:
        return 1


def call(tool: str, id_: str = "", **arguments: Any) -> dict[str, Any]:
    return {
        "id": id_ or f"call-{tool}",
        "type": "function",
        "function": {"name": tool, "arguments": json.dumps(arguments)},
    }


def answer_once_called(*calls: Any) -> FunctionModel:
    """Return a model that makes these calls in each execution, one after the other, then says what they returned."""

    def answer(messages: Sequence[Any]) -> Any:
        begins = max(number for number, one in enumerate(messages) if one["role"] == "user")
        results = [one["content"] for one in messages[begins:] if one["role"] == "tool"]
        return [calls[len(results)]] if len(results) < len(calls) else f"done: {', '.join(results)}"

    return FunctionModel.make(answer)
