"""A model for Strands that needs no network: a function of the messages is its answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from strands.models import Model

Answer = str | list[dict[str, Any]]


def call(name: str, call_id: str = "", **arguments: Any) -> dict[str, Any]:
    return {"toolUse": {"toolUseId": call_id or f"call-{name}", "name": name, "input": arguments}}


class FunctionModel(Model):
    """A model that answers as a function says; `requests` has the messages it was asked with."""

    def __init__(self, answer: Callable[[Sequence[Any]], Answer]) -> None:
        self.answer = answer
        self.requests: list[list[Any]] = []
        self.prompts: list[str | None] = []

    def update_config(self, **_: Any) -> None: ...

    def get_config(self) -> dict[str, Any]:
        return {"context_window_limit": 1_000_000}

    async def structured_output(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        raise NotImplementedError  # no test asks for structured output
        yield

    async def stream(
        self, messages: Any, tool_specs: Any = None, system_prompt: str | None = None, **_: Any
    ) -> AsyncIterator[Any]:
        self.requests.append(list(messages))
        self.prompts.append(system_prompt)
        said = self.answer(messages)
        blocks = [{"text": said}] if isinstance(said, str) else said
        yield {"messageStart": {"role": "assistant"}}
        for block in blocks:
            use = block.get("toolUse")
            started = {} if use is None else {"toolUse": {"toolUseId": use["toolUseId"], "name": use["name"]}}
            yield {"contentBlockStart": {"start": started}}
            for delta in _deltas(block):
                yield {"contentBlockDelta": {"delta": delta}}
            yield {"contentBlockStop": {}}
        reason = "tool_use" if any("toolUse" in block for block in blocks) else "end_turn"
        yield {"messageStop": {"stopReason": reason}}
        size = 10 * len(messages)
        usage = {"inputTokens": size, "outputTokens": 5, "totalTokens": size + 5}
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 1}}}


def _deltas(block: dict[str, Any]) -> list[dict[str, Any]]:
    if "toolUse" in block:
        return [{"toolUse": {"input": json.dumps(block["toolUse"]["input"])}}]
    if "reasoningContent" in block:
        reasoning = block["reasoningContent"]
        if "redactedContent" in reasoning:
            return [{"reasoningContent": {"redactedContent": reasoning["redactedContent"]}}]
        shown = reasoning["reasoningText"]
        return [{"reasoningContent": {"text": shown["text"]}}, {"reasoningContent": {"signature": shown["signature"]}}]
    words = block["text"].split(" ")
    return [{"text": word if number == 0 else f" {word}"} for number, word in enumerate(words)]


def text_of(message: Any) -> str:
    return "".join(block["text"] for block in message["content"] if "text" in block)


def results_since_user(messages: Sequence[Any]) -> list[str]:
    """Return the results of the calls that were made since the user spoke."""
    found: list[str] = []
    for message in reversed(messages):
        if message["role"] != "user":
            continue
        results = [block["toolResult"] for block in message["content"] if "toolResult" in block]
        if not results:
            break
        found[:0] = ["".join(str(one.get("text", one)) for one in result["content"]) for result in results]
    return found
