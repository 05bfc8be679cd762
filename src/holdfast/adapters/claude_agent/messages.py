"""Messages of the SDK: made of entries of a transcript, and results of turns as plain data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from typing import Any

from claude_agent_sdk import (
    AssistantMessage,
    DeferredToolUse,
    Message,
    ResultMessage,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)

from holdfast.adapters.claude_agent.entries import Entries, find_answer, is_message, read_arguments, read_blocks


def load_messages(entries: Entries) -> Iterator[Message]:
    """Yield the messages of entries, without what the SDK's stream has beside them."""
    for entry in entries:
        if not is_message(entry) or entry.get("isMeta") is True:
            continue
        message, id_ = entry["message"], entry.get("uuid")
        if entry["type"] == "assistant":
            yield AssistantMessage(
                content=_blocks(entry),
                model=str(message.get("model")),
                usage=message.get("usage"),
                message_id=message.get("id"),
                stop_reason=message.get("stop_reason"),
                session_id=entry.get("sessionId"),
                uuid=id_,
            )
        elif isinstance(message.get("content"), list):  # a text is the prompt, which the stream does not have
            yield UserMessage(content=_blocks(entry), uuid=id_, tool_use_result=entry.get("toolUseResult"))


def _blocks(entry: Any) -> list[Any]:
    """Return the blocks that the SDK has classes for."""
    found: list[Any] = []
    for block in read_blocks(entry):
        match block:
            case {"type": "text", "text": str() as text}:
                found.append(TextBlock(text=text))
            case {"type": "thinking", "thinking": str() as text}:
                found.append(ThinkingBlock(thinking=text, signature=str(block.get("signature", ""))))
            case {"type": "tool_use", "id": str() as id_, "name": str() as name}:
                found.append(ToolUseBlock(id=id_, name=name, input=read_arguments(block)))
            case {"type": "tool_result", "tool_use_id": str() as id_}:
                error = block.get("is_error")
                found.append(ToolResultBlock(tool_use_id=id_, content=block.get("content"), is_error=error))
    return found


def dump_result(result: ResultMessage, entries: Entries) -> dict[str, Any]:
    """Return a result as plain data. Its text is left out if the transcript ends with it."""
    known = {name: value for name, value in asdict(result).items() if value is not None}
    if "result" in known and known["result"] == _text_of(find_answer(entries)):
        del known["result"]
    return known


def load_result(recorded: Mapping[str, Any], entries: Entries) -> ResultMessage:
    names = {field.name for field in fields(ResultMessage)}
    known = {name: value for name, value in recorded.items() if name in names}
    if "result" not in known and not known.get("is_error"):
        known["result"] = _text_of(find_answer(entries))
    deferred = known.get("deferred_tool_use")
    if isinstance(deferred, Mapping):
        known["deferred_tool_use"] = DeferredToolUse(**deferred)
    return ResultMessage(**known)


def make_result(entries: Entries, session_id: str) -> ResultMessage:
    """Return the result of a turn whose answer is stored, but whose result was lost; costs are unknown."""
    answer = find_answer(entries) or {}
    ids = {entry["message"].get("id") for entry in entries if is_message(entry) and entry["type"] == "assistant"}
    return ResultMessage(
        subtype="success",
        duration_ms=0,
        duration_api_ms=0,
        is_error=False,
        num_turns=len(ids),
        session_id=session_id,
        stop_reason=answer.get("stop_reason"),
        result=_text_of(answer),
    )


def _text_of(answer: Mapping[str, Any] | None) -> str | None:
    """Return the text of the last block of an answer, which is the result of a turn."""
    texts = [str(block.get("text")) for block in read_blocks({"message": answer}) if block.get("type") == "text"]
    return texts[-1] if texts else None
