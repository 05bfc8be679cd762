"""A chat client for agent-framework that needs no network: a function of the messages is its answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agent_framework import ChatResponse, ChatResponseUpdate, Content, Message, ResponseStream
from agent_framework._clients import BaseChatClient
from agent_framework._middleware import ChatMiddlewareLayer
from agent_framework._tools import FunctionInvocationLayer

Answer = str | list[Content]


def call(name: str, call_id: str = "", **arguments: Any) -> Content:
    return Content.from_function_call(call_id or f"call-{name}", name, arguments=arguments)


class FunctionClient(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """A client that answers as a function says; `requests` has the messages it was asked with."""

    def __init__(self, answer: Callable[[Sequence[Any]], Answer]) -> None:
        super().__init__()
        self.answer = answer
        self.requests: list[list[Any]] = []

    def _inner_get_response(self, *, messages: Sequence[Any], stream: bool, options: Any, **_: Any) -> Any:
        def ask() -> ChatResponse:
            self.requests.append(list(messages))
            said = self.answer(messages)
            contents = [Content.from_text(said)] if isinstance(said, str) else said
            usage = {"input_token_count": 10 * len(messages), "output_token_count": 5}
            return ChatResponse(messages=[Message("assistant", contents)], response_id="r", usage_details=usage)

        async def whole() -> ChatResponse:
            return ask()

        async def pieces() -> Any:
            response = ask()
            for content in response.messages[0].contents:
                words = content.text.split(" ") if content.type == "text" else [None]
                for number, word in enumerate(words):
                    piece = content if word is None else Content.from_text(word if number == 0 else f" {word}")
                    yield ChatResponseUpdate(contents=[piece], role="assistant", response_id="r")
            yield ChatResponseUpdate(contents=[Content.from_usage(response.usage_details)], role="assistant")

        return ResponseStream(pieces(), finalizer=ChatResponse.from_updates) if stream else whole()


def results_since_user(messages: Sequence[Any]) -> list[str]:
    """Return the results of the calls that were made since the user spoke."""
    found: list[str] = []
    for message in reversed(messages):
        if message.role == "user" and any(content.type == "text" for content in message.contents):
            break
        found[:0] = [str(one.result) for one in message.contents if one.type == "function_result"]
    return found
