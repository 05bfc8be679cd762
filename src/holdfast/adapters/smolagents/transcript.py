"""The conversation of a smolagents session, in neutral form. Imports nothing of smolagents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.adapters.base.conversion import is_picture, native_messages, place_messages
from holdfast.adapters.base.session_transcript import MESSAGES, build_transcript
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.conversation import (
    BlobPart,
    MessagePart,
    TextPart,
    ToolCallPart,
    ToolResponsePart,
    Transcript,
    TranscriptMessage,
)
from holdfast.model.conversion_target import ConversionOptions, ConvertedState

_FIRST = "first"
# Of steps that came from another framework: the media type of each image, and the call whose result it is.
_IMAGE_TYPES, _IMAGE_CALLS = "image_types", "image_calls"


def to_transcript(checkpoint: Checkpoint) -> Transcript:
    return build_transcript(
        checkpoint,
        messages_of_state,
        messages_of_answer,
        state_of=lambda state: {name: value for name, value in state.items() if name not in (MESSAGES, _FIRST)},
    )


def messages_of_state(state: Mapping[str, Any]) -> Sequence[TranscriptMessage]:
    """Return the messages of the conversation since the last run with `reset`."""
    steps, first = state.get("messages"), state.get(_FIRST, 0)
    if not isinstance(steps, list | tuple) or not isinstance(first, int):
        return []
    return [message for step in steps[first:] if isinstance(step, Mapping) for message in _messages_of_step(step)]


def messages_of_answer(answer: Any) -> Sequence[TranscriptMessage]:
    """Return the message of one answer of the model."""
    return [_answer(answer.get("content"), answer.get("calls"))] if isinstance(answer, Mapping) else []


def from_transcript(transcript: Transcript, options: ConversionOptions) -> ConvertedState:
    """Return the conversation as the state that `resumable(agent, session_id=...)` continues.

    Its first run must be one with `reset=False`: smolagents forgets the conversation otherwise. Values
    that are carried over are those of `agent.state`.
    """
    steps = _native_steps(transcript.messages, float(options.created_at))
    made = place_messages([*native_messages(options), *steps], options, {_FIRST: 0})
    if not options.carried:
        return made
    known = made.state.get("agent_state")
    values = {**(known if isinstance(known, Mapping) else {}), **options.carried}
    return replace(made, state={**made.state, "agent_state": values}, left=())


def _native_steps(messages: Sequence[TranscriptMessage], created_at: float) -> Iterator[dict[str, Any]]:
    """Yield the steps: a task for what the user said, an action for the model's message and its results."""
    number = 0
    for place, message in enumerate(messages):
        if message.role == "user":
            number = 0
            yield {"step": "task", "task": _native_text(message.parts), **_native_images(message.parts)}
        elif message.role == "assistant":
            number += 1
            following = messages[place + 1] if place + 1 < len(messages) else None
            results = following.tool_responses if following is not None else ()
            about = {"step": "action", "number": number, "timing": [created_at, created_at]}
            yield {**about, **_native_action(message, results)}


def _native_action(message: TranscriptMessage, results: Sequence[ToolResponsePart]) -> dict[str, Any]:
    made: dict[str, Any] = {"said": {}}  # the model's message has no more than the step itself
    if any(isinstance(part, TextPart) for part in message.parts):
        made["output"] = _native_text(message.parts)
    if not message.tool_calls:
        return made
    made["calls"] = [
        {"id": call.id, "name": call.name, "arguments": dict(call.arguments or {})} for call in message.tool_calls
    ]
    observed = [_native_text(result.content) for result in results]
    made["observations"] = observed if len(observed) > 1 else "".join(observed)
    shown = [(number, part) for number, response_part in enumerate(results) for part in response_part.content]
    made |= _native_images([part for _, part in shown])
    if "images" in made:
        made[_IMAGE_CALLS] = [number for number, part in shown if is_picture(part)]
    return made


def _native_text(parts: Sequence[MessagePart]) -> str:
    return "\n\n".join(text for part in parts for text in _native_texts(part))


def _native_texts(part: MessagePart) -> Iterator[str]:
    match part:
        case TextPart():
            yield part.content
        case BlobPart() if not is_picture(part):
            yield f"[not carried over: {part.mime_type}]"
        case BlobPart() | ToolCallPart():
            pass
        case _:
            yield f"[not carried over: {part.kind}]"


def _native_images(parts: Sequence[MessagePart]) -> dict[str, Any]:
    images = [part for part in parts if isinstance(part, BlobPart) and is_picture(part)]
    return (
        {"images": [image.data for image in images], _IMAGE_TYPES: [image.mime_type for image in images]}
        if images
        else {}
    )


def _messages_of_step(step: Mapping[str, Any]) -> Iterator[TranscriptMessage]:
    if step.get("step") == "task":
        yield TranscriptMessage(role="user", parts=(*_texts(step.get("task")), *_blobs(step)))
        return
    if step.get("step") == "plan":
        yield TranscriptMessage(role="assistant", parts=tuple(_texts(step.get("plan"))))
        return
    answer = step.get("said")
    calls = step.get("calls") or (answer.get("calls") if isinstance(answer, Mapping) else None)
    message = _answer(step.get("output"), calls)
    if message.parts:
        yield message
    images = list(_blobs(step))
    owners = step.get(_IMAGE_CALLS)
    if not isinstance(owners, list | tuple) or len(owners) != len(images):
        owners = [None] * len(images)
    count = len(message.tool_calls)
    shown = [[image for image, owner in zip(images, owners, strict=True) if owner == number] for number in range(count)]
    yield from _responses(step, message.tool_calls, shown)
    rest = tuple(image for image, owner in zip(images, owners, strict=True) if owner not in range(count))
    if rest:
        yield TranscriptMessage(role="user", parts=rest)


def _responses(
    step: Mapping[str, Any], calls: Sequence[ToolCallPart], images: Sequence[Sequence[BlobPart]]
) -> Iterator[TranscriptMessage]:
    """Yield what the tools returned. If a step has one text for all of its calls, the first gets it."""
    observed = step.get("observations")
    texts = list(observed) if isinstance(observed, list | tuple) and observed else [observed or None]
    error = step.get("error")
    failure = str(error.get("message", "")) if isinstance(error, Mapping) else None
    if failure is not None:
        texts[0] = failure if texts[0] is None else f"{texts[0]}\n{failure}"
    for number, call in enumerate(calls):
        text = texts[number] if number < len(texts) else None
        content = (*_texts(text), *images[number])
        part = ToolResponsePart(id=call.id, name=call.name, content=content, is_error=failure is not None)
        yield TranscriptMessage(role="tool", parts=(part,))
    if not calls and texts[0] is not None:
        yield TranscriptMessage(role="user", parts=tuple(_texts(texts[0])))


def _answer(content: Any, calls: Any) -> TranscriptMessage:
    parts: list[MessagePart] = list(_texts(content))
    named = [call for call in calls if isinstance(call, Mapping)] if isinstance(calls, list | tuple) else []
    parts += [_call(str(item.get("id", "")), str(item.get("name", "")), item.get("arguments")) for item in named]
    return TranscriptMessage(role="assistant", parts=tuple(parts))


def _call(id_: str, name: str, arguments: Any) -> ToolCallPart:
    if arguments is None or isinstance(arguments, Mapping):
        return ToolCallPart(id=id_, name=name, arguments=dict(arguments or {}))
    if name == "python_interpreter":
        return ToolCallPart(id=id_, name=name, arguments={"code": str(arguments)})
    return ToolCallPart(id=id_, name=name, arguments=None, raw_arguments=str(arguments))


def _texts(content: Any) -> Iterator[TextPart]:
    blocks = content if isinstance(content, list | tuple) else [content]
    for block in blocks:
        text = block.get("text") if isinstance(block, Mapping) else block
        if text not in (None, ""):
            yield TextPart(content=str(text))


def _blobs(step: Mapping[str, Any]) -> Iterator[BlobPart]:
    images, types = step.get("images"), step.get(_IMAGE_TYPES)
    for number, image in enumerate(images if isinstance(images, list | tuple) else ()):
        known = types[number] if isinstance(types, list | tuple) and number < len(types) else None
        if isinstance(image, bytes):
            yield BlobPart(mime_type=known if isinstance(known, str) else "image/png", data=image)
