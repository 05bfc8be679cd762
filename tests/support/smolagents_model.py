"""A model for smolagents that is a function of its messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from smolagents import ChatMessage, MessageRole, Model
from smolagents.models import (
    ChatMessageStreamDelta,
    ChatMessageToolCall,
    ChatMessageToolCallFunction,
    ChatMessageToolCallStreamDelta,
)
from smolagents.monitoring import TokenUsage

Calls = list[tuple[str, dict[str, Any]]]


class FunctionModel(Model):
    """Answers with what the function makes of the messages: a text, or calls. `asked` counts the requests."""

    def __init__(self, answer: Callable[[Sequence[ChatMessage]], str | Calls], **options: Any) -> None:
        super().__init__(model_id="function", **options)
        self.answer = answer
        self.asked = 0

    def generate(self, messages: Sequence[ChatMessage], *_: Any, **__: Any) -> ChatMessage:
        self.asked += 1
        answer = self.answer(messages)
        usage = TokenUsage(input_tokens=10, output_tokens=5)
        if isinstance(answer, str):
            return ChatMessage(role=MessageRole.ASSISTANT, content=answer, token_usage=usage, raw=self)
        calls = [
            ChatMessageToolCall(
                ChatMessageToolCallFunction(arguments, name), f"call-{len(messages)}-{number}", "function"
            )
            for number, (name, arguments) in enumerate(answer)
        ]
        return ChatMessage(role=MessageRole.ASSISTANT, content=None, tool_calls=calls, token_usage=usage, raw=self)


class StreamingModel(FunctionModel):
    """The same, in two parts."""

    def generate_stream(self, messages: Sequence[ChatMessage], **_: Any) -> Iterator[ChatMessageStreamDelta]:
        whole = self.generate(messages)
        if whole.tool_calls:
            for number, one in enumerate(whole.tool_calls):
                arguments = ChatMessageToolCallFunction(
                    str(one.function.arguments).replace("'", '"'), one.function.name
                )
                call = ChatMessageToolCallStreamDelta(number, one.id, "function", arguments)
                yield ChatMessageStreamDelta(tool_calls=[call])
        else:
            half = len(str(whole.content)) // 2
            yield ChatMessageStreamDelta(content=str(whole.content)[:half])
            yield ChatMessageStreamDelta(content=str(whole.content)[half:])
        yield ChatMessageStreamDelta(content="", token_usage=whole.token_usage)


def text_of(message: ChatMessage) -> str:
    """Return the texts of a message."""
    content = message.content
    if isinstance(content, list):
        return "".join(str(one.get("text", "")) for one in content)
    return str(content or "")


def since_task(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return the messages of the current run: its task, and what came after it."""
    begins = [at for at, one in enumerate(messages) if text_of(one).startswith("New task:")]
    return list(messages[begins[-1] :]) if begins else list(messages)


def answer_in_steps(*steps: str | Calls) -> Callable[[Sequence[ChatMessage]], str | Calls]:
    """Return an answer by how many steps of the current run are done; the last one is given from then on."""

    def answer(messages: Sequence[ChatMessage]) -> str | Calls:
        roles = ("tool-response", MessageRole.TOOL_RESPONSE)
        done = sum(one.role in roles for one in since_task(messages))
        return steps[min(done, len(steps) - 1)]

    return answer


def final(answer: str) -> Calls:
    return [("final_answer", {"answer": answer})]


def code(*lines: str) -> str:
    return "Thought: go.\n<code>\n" + "\n".join(lines) + "\n</code>"
