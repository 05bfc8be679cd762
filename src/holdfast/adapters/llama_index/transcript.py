"""The conversation of a workflow, in neutral form. Imports nothing of LlamaIndex.

A workflow has no messages of its own. If its state has a list `messages`, that is the conversation,
as the workflow wrote it. Otherwise each turn is: what the workflow was given, and what it returned;
and of a turn under way, the recorded calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from holdfast.adapters.base.recorded_text import follow
from holdfast.adapters.base.session import TURN
from holdfast.adapters.base.session_transcript import build_transcript, read_results
from holdfast.model.chat_messages import message_of_chat
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.conversation import Transcript, TranscriptCursor, TranscriptMessage, text_parts
from holdfast.model.transcript_repair import as_text

_PENDING = ("workflow",)  # where a run stands is not in the conversation


def to_transcript(checkpoint: Checkpoint) -> Transcript:
    state = checkpoint.execution_state if isinstance(checkpoint.execution_state, Mapping) else {}
    listed = state.get("messages")
    messages = [_message(item) for item in listed] if isinstance(listed, list) else []
    if messages and all(messages):
        is_finished = state.get(TURN) is None
        cursor = TranscriptCursor(
            framework=str(checkpoint.framework),
            position=None if is_finished else checkpoint.step_name,
            is_finished=is_finished,
            pending=() if is_finished else _PENDING,
        )
        kept = tuple(message for message in messages if message is not None)
        return Transcript(messages=kept, cursor=cursor, state=_state_of(state))
    return build_transcript(
        checkpoint,
        lambda _: list(_turns(checkpoint)),
        messages_of_answer,
        state_of=_state_of,
        pending_of=lambda _: _PENDING,
    )


def messages_of_answer(answer: Any) -> Sequence[TranscriptMessage]:
    """Return one answer of a model: a message, a response that has one, or any other data as a text."""
    value = _unwrap(answer)
    if isinstance(value, Mapping) and isinstance(value.get("choices"), list) and value["choices"]:
        value = value["choices"][0]  # as OpenAI answers
    if isinstance(value, Mapping) and "message" in value:
        value = value["message"]  # as LlamaIndex's ChatResponse has it
    return [_message(value) or TranscriptMessage(role="assistant", parts=text_parts(as_text(value)))]


def _state_of(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the values of the workflow's own state, but for the messages."""
    tree = state.get("state")
    values = tree.get("value") if isinstance(tree, Mapping) else None
    return dict(values) if isinstance(values, Mapping) else {}


def _turns(checkpoint: Checkpoint) -> Iterator[TranscriptMessage]:
    """Yield input and result of each finished turn."""
    values: dict[int, Any] = {}
    for found in read_results(checkpoint, 0):
        value = values[found.number] = found.value
        if isinstance(value, Mapping) and value.keys() - {"input"} == {"stop"}:
            if "input" in value:
                yield TranscriptMessage(role="user", parts=text_parts(as_text(value["input"])))
            stop = value["stop"] if isinstance(value["stop"], Mapping) else {}
            if "answer" in stop:  # the place of a text that the model has answered
                result = follow(values, stop["answer"])
            else:
                result = stop["result"] if "result" in stop else _unwrap(stop.get("event"))
            yield TranscriptMessage(role="assistant", parts=text_parts(as_text(result)))


def _message(given: Any) -> TranscriptMessage | None:
    """Return a chat message: a dict with a role, or a `ChatMessage` of LlamaIndex; None for anything else."""
    value = _unwrap(given)
    if not isinstance(value, Mapping) or not isinstance(value.get("role"), str):
        return None
    fields = dict(value)
    if isinstance(fields.get("blocks"), list):  # LlamaIndex's own: blocks, and what the provider adds
        blocks = fields.pop("blocks")
        more = fields.pop("additional_kwargs", None)
        fields |= dict(more) if isinstance(more, Mapping) else {}
        fields["content"] = [_block(block) if isinstance(block, Mapping) else block for block in blocks]
    return message_of_chat(fields)


def _block(block: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a block of a `ChatMessage` in the shape of LangChain's."""
    kind = block.get("block_type")
    more = block.get("additional_information")
    match kind:
        case "thinking":
            return {"type": "thinking", "thinking": block.get("content"), **(more if isinstance(more, Mapping) else {})}
        case "tool_call":
            called = {"id": block.get("tool_call_id"), "name": block.get("tool_name"), "args": block.get("tool_kwargs")}
            return {"type": "tool_call", **called}
        case "image" | "document" | "audio" | "video":
            data, given = block.get("data" if kind == "document" else kind), block.get("format")
            mime_type = block.get(f"{kind}_mimetype") or (f"{kind}/{given}" if given else None)
            media = {"type": "file" if kind == "document" else kind, "mime_type": mime_type}
            url = block.get("url")
            return {**media, "base64": data} if isinstance(data, str) else {**media, "url": url}
        case _:
            return {**block, "type": kind}


def _unwrap(value: Any) -> Any:
    """Return the fields of an object that the framework has serialized."""
    is_object = isinstance(value, Mapping) and ("__is_pydantic" in value or "__is_component" in value)
    return value.get("value") if is_object else value
