"""Messages, tool results and requests of Pydantic AI as plain data, and back.

Messages are stored in Pydantic AI's own JSON form, one by one, but with the data of images and
files as bytes.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed
from pydantic_ai.exceptions import ToolFailedError, ToolRetryError
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    ToolReturn,
    ToolReturnContent,
    tool_return_ta,
)
from pydantic_ai.models import ModelRequestParameters

from holdfast.adapters.base.unreadable import check_texts

SIGNAL = "pydantic_ai"
"""The key of a recorded tool result that is more than the content of the result."""
_NOT_OF_THE_REQUEST = ("timestamp", "run_id", "conversation_id", "instructions", "metadata", "usage")


def dump_messages(messages: Iterable[ModelMessage]) -> list[dict[str, Any]]:
    """Return messages as plain data; the data of files stays bytes."""
    dumped = ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")
    return [_with_bytes(item) for item in dumped]


def load_messages(recorded: Sequence[Mapping[str, Any]]) -> list[ModelMessage]:
    messages: list[ModelMessage] = ModelMessagesTypeAdapter.validate_python(list(recorded))
    return messages


def dump_response(response: ModelResponse) -> dict[str, Any]:
    return dump_messages([response])[0]


def load_response(recorded: Mapping[str, Any]) -> ModelResponse:
    check_texts(recorded)
    [response] = load_messages([recorded])
    if not isinstance(response, ModelResponse):
        raise TypeError(f"the answer is a {type(response).__name__}")
    return response


def _with_bytes(value: Any) -> Any:
    """Return dumped data with the data of files as bytes instead of base64."""
    if isinstance(value, dict):
        if value.get("kind") == "binary" and isinstance(value.get("data"), str):
            return {**value, "data": base64.urlsafe_b64decode(value["data"].encode())}
        return {name: _with_bytes(item) for name, item in value.items()}
    return [_with_bytes(item) for item in value] if isinstance(value, list) else value


# -- requests ----------------------------------------------------------------------------------------------------------


def identify_request(
    messages: Sequence[ModelMessage],
    parameters: ModelRequestParameters,
    run_id: str | None,
    before: Collection[int] = (),
) -> dict[str, Any]:
    """Return what identifies a request: the messages of this run, and what the model may answer with.

    Instructions and system prompts are left out, because they often have the time of day. The number
    of earlier messages stands for them: to digest a long conversation for each request takes long.
    `before` has the ids of the objects of earlier messages: those from elsewhere have no `run_id`.
    """
    own = [
        message
        for message in messages
        if message.run_id == run_id or (message.run_id is None and id(message) not in before)
    ]
    return {
        "messages": [_without_times(message) for message in dump_messages(own)],
        "before": len(messages) - len(own),
        "tools": sorted(tool.name for tool in parameters.function_tools),
        "output": [parameters.output_mode, *sorted(tool.name for tool in parameters.output_tools)],
    }


def _without_times(message: Mapping[str, Any]) -> dict[str, Any]:
    parts = [
        {name: value for name, value in part.items() if name not in _NOT_OF_THE_REQUEST}
        for part in message.get("parts", ())
        if part.get("part_kind") != "system-prompt"
    ]
    return {"kind": message.get("kind"), "parts": parts}


# -- tools -------------------------------------------------------------------------------------------------------------


def dump_tool_result(result: Any) -> Any:
    """Return a tool's result as the plain data that the model reads."""
    if isinstance(result, ToolReturn):
        return {SIGNAL: "return", "value": _tool_returns().dump_python(result, mode="json")}
    return _with_bytes(tool_return_ta.dump_python(result, mode="json", by_alias=True))


def load_tool_result(recorded: Any) -> Any:
    """Return a recorded result as the tool's own, or what the tool has raised to Pydantic AI."""
    check_texts(recorded)
    if not isinstance(recorded, Mapping) or SIGNAL not in recorded:
        return _contents().validate_python(recorded)
    match recorded[SIGNAL]:
        case "return":
            return _tool_returns().validate_python(recorded["value"])
        case "retry":
            return ModelRetry(_text_of(recorded))
        case "failed":
            return ToolFailed(_text_of(recorded))
        case "approval":
            return ApprovalRequired(_metadata_of(recorded))
        case _:
            return CallDeferred(_metadata_of(recorded))


def _text_of(recorded: Mapping[str, Any]) -> str:
    if not isinstance(recorded["message"], str):
        raise TypeError(f"the message of a tool is a {type(recorded['message']).__name__}")
    return recorded["message"]


def _metadata_of(recorded: Mapping[str, Any]) -> dict[str, Any] | None:
    metadata = recorded["metadata"]
    if metadata is not None and not isinstance(metadata, dict):
        raise TypeError(f"the metadata of a tool is a {type(metadata).__name__}")
    return metadata


def dump_signal(error: Exception) -> dict[str, Any]:
    """Return what a tool has raised to tell Pydantic AI something as plain data."""
    if isinstance(error, ApprovalRequired | CallDeferred):
        return {SIGNAL: "approval" if isinstance(error, ApprovalRequired) else "deferred", "metadata": error.metadata}
    cause = error.__cause__ if isinstance(error.__cause__, ModelRetry | ToolFailed) else error
    kind = "failed" if isinstance(error, ToolFailed | ToolFailedError) else "retry"
    return {SIGNAL: kind, "message": getattr(cause, "message", str(cause))}


SIGNALS = (ModelRetry, ToolRetryError, ToolFailed, ToolFailedError, ApprovalRequired, CallDeferred)


@cache
def _contents() -> TypeAdapter[Any]:
    return TypeAdapter(ToolReturnContent)


@cache
def _tool_returns() -> TypeAdapter[Any]:
    return TypeAdapter(ToolReturn)
