"""A model behind an OpenAI-compatible HTTP endpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from holdfast.agent_loop.http_endpoint import HttpEndpoint, Messages, ReplyBuilder
from holdfast.agent_loop.reply import ANTHROPIC_CONTENT, Reply, reply_of


class OpenAICompatible(HttpEndpoint):
    """A model behind an OpenAI-compatible endpoint, for `agent(model=...)`.

    `OpenAICompatible("http://localhost:8000/v1", "some-model", api_key=...)`.

    `timeout` is the longest silence in seconds. `retries` is the number of repeated requests, after
    the server's Retry-After or, without it, after one, two, four seconds. Further keywords
    (`temperature=0`) are part of every request.
    """

    _resource = "chat/completions"
    _answer_kind = "chat completion"

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str | None = None,
        timeout: float = 120.0,
        retries: int = 4,
        headers: Mapping[str, str] | None = None,
        sleep: Callable[[float], None] = time.sleep,
        **options: Any,
    ) -> None:
        own = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        super().__init__(
            base_url,
            model,
            timeout=timeout,
            retries=retries,
            headers={**(headers or {}), **own},
            sleep=sleep,
            options=options,
        )

    def _request(self, messages: Messages, tools: Messages, *, stream: bool) -> Mapping[str, Any]:
        sent = [{key: value for key, value in message.items() if key != ANTHROPIC_CONTENT} for message in messages]
        body: dict[str, Any] = {"model": self.model, "messages": sent, **self._options}
        if tools:
            body["tools"] = list(tools)
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return body

    def _reply(self, answer: Mapping[str, Any]) -> Reply | None:
        # Without choices it is none: a message of its own would be an empty one.
        return reply_of(answer) if "choices" in answer else None

    def _make_builder(self) -> ReplyBuilder:
        return _ReplyBuilder()


class _ReplyBuilder:
    """A reply that comes in pieces."""

    def __init__(self) -> None:
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, dict[str, Any]] = {}
        self._usage: Mapping[str, Any] = {}
        self.is_whole = False

    def add(self, chunk: Mapping[str, Any]) -> Iterator[str]:
        self._usage = chunk.get("usage") or self._usage
        for choice in chunk.get("choices") or ():
            delta = choice.get("delta") or {}
            self.is_whole = self.is_whole or choice.get("finish_reason") is not None
            if delta.get("reasoning_content"):
                self._reasoning.append(delta["reasoning_content"])
            for piece in delta.get("tool_calls") or ():
                self._add_call(piece)
            if delta.get("content"):
                self._content.append(delta["content"])
                yield delta["content"]

    def _add_call(self, piece: Mapping[str, Any]) -> None:
        call = self._calls.setdefault(
            piece.get("index", len(self._calls)),
            {"id": None, "type": "function", "function": {"name": "", "arguments": ""}},
        )
        call["id"] = piece.get("id") or call["id"]
        function = piece.get("function") or {}
        call["function"]["name"] += function.get("name") or ""
        call["function"]["arguments"] += function.get("arguments") or ""

    def reply(self) -> Reply:
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._content) or None}
        if self._calls:
            message["tool_calls"] = [self._calls[index] for index in sorted(self._calls)]
        reasoning = "".join(self._reasoning) or None
        return reply_of(Reply(message=message, usage=self._usage, reasoning=reasoning))
