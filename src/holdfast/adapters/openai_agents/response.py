"""A model's answer as plain data, and back: a `ModelResponse`, or the events of a stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from agents import ModelResponse
from agents.usage import Usage, deserialize_usage, serialize_usage
from openai.types import responses as types
from openai.types.responses.response_usage import ResponseUsage
from pydantic import BaseModel, TypeAdapter, ValidationError

from holdfast.adapters.base.unreadable import check_texts


def dump_response(response: ModelResponse) -> dict[str, Any]:
    """Return an answer as plain data; fields that are empty are left out."""
    fields = {
        "output": [dump_item(item) for item in response.output],
        "usage": _dump_usage(response.usage),
        "id": response.response_id,
        "request_id": response.request_id,
        "raw_usage": response.raw_usage,
    }
    return {name: value for name, value in fields.items() if value is not None}


def load_response(recorded: Mapping[str, Any]) -> ModelResponse:
    check_texts(recorded)
    return ModelResponse(
        output=[load_item(item) for item in recorded["output"]],
        usage=deserialize_usage(recorded.get("usage", {})),
        response_id=recorded.get("id"),
        request_id=recorded.get("request_id"),
        raw_usage=recorded.get("raw_usage"),
    )


def dump_item(item: Any) -> Any:
    """Return an item of a conversation as plain data: the fields that the model has set."""
    return item.model_dump(mode="json", exclude_unset=True) if isinstance(item, BaseModel) else dict(item)


def load_item(item: Mapping[str, Any]) -> Any:
    """Return an item of the model's output; as a dict, if the SDK has no class for it."""
    try:
        return _output_items().validate_python(dict(item))
    except ValidationError:
        return dict(item)


@cache
def _output_items() -> TypeAdapter[Any]:
    return TypeAdapter(types.ResponseOutputItem)


def _dump_usage(usage: Usage) -> dict[str, Any]:
    """Return the counts that are not zero: an answer is small, and most counts are zero."""

    def without_zeros(value: Any) -> Any:
        if isinstance(value, Mapping):
            kept = {name: without_zeros(item) for name, item in value.items()}
            return {name: item for name, item in kept.items() if item not in (0, None, {}, [])}
        if isinstance(value, list):
            return [kept for item in value if (kept := without_zeros(item))]
        return value

    counts: dict[str, Any] = without_zeros(serialize_usage(usage))
    return counts


# -- streams -----------------------------------------------------------------------------------------------------------


class StreamCollector:
    """Makes the recorded answer of a stream's events."""

    def __init__(self) -> None:
        self._done: list[Any] = []

    def collect(self, event: Any) -> dict[str, Any] | None:
        """Return the answer if this event completes it."""
        if isinstance(event, types.ResponseOutputItemDoneEvent):
            self._done.append(event.item)
        if not isinstance(event, types.ResponseCompletedEvent):
            return None
        response = event.response
        # Some providers complete a stream with an answer that has no output.
        output = response.output or self._done
        usage = Usage()
        if response.usage is not None:
            usage = Usage(
                requests=1,
                input_tokens=response.usage.input_tokens,
                input_tokens_details=response.usage.input_tokens_details,
                output_tokens=response.usage.output_tokens,
                output_tokens_details=response.usage.output_tokens_details,
                total_tokens=response.usage.total_tokens,
            )
        return dump_response(ModelResponse(output=list(output), usage=usage, response_id=response.id))


def replay_events(recorded: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the events of a recorded answer: each item whole, where the model had streamed parts."""
    response = load_response(recorded)
    whole = types.Response(
        id=response.response_id or "", created_at=0, model="", object="response", output=list(response.output),
        tool_choice="auto", tools=[], parallel_tool_calls=False, usage=_usage_of(response.usage),
    )  # fmt: skip
    begun = whole.model_copy(update={"output": [], "usage": None})
    events: list[Any] = [types.ResponseCreatedEvent(response=begun, sequence_number=0, type="response.created")]
    for index, item in enumerate(response.output):
        place = {"item": item, "output_index": index, "sequence_number": 0}
        events.append(types.ResponseOutputItemAddedEvent(**place, type="response.output_item.added"))
        events += _deltas_of(item, index)
        events.append(types.ResponseOutputItemDoneEvent(**place, type="response.output_item.done"))
    events.append(types.ResponseCompletedEvent(response=whole, sequence_number=0, type="response.completed"))
    for number, event in enumerate(events):
        event.sequence_number = number
        yield event


def _deltas_of(item: Any, index: int) -> Iterator[Any]:
    """Yield the texts of an item, each as one delta: programs print what arrives in deltas."""
    if isinstance(item, types.ResponseOutputMessage):
        for number, part in enumerate(item.content):
            if isinstance(part, types.ResponseOutputText):
                yield types.ResponseTextDeltaEvent(
                    content_index=number, delta=part.text, item_id=item.id, logprobs=[], output_index=index,
                    sequence_number=0, type="response.output_text.delta",
                )  # fmt: skip
    elif isinstance(item, types.ResponseFunctionToolCall):
        yield types.ResponseFunctionCallArgumentsDeltaEvent(
            delta=item.arguments, item_id=item.id or item.call_id, output_index=index, sequence_number=0,
            type="response.function_call_arguments.delta",
        )  # fmt: skip


def _usage_of(usage: Usage) -> ResponseUsage | None:
    if not usage.requests:
        return None
    return ResponseUsage(
        input_tokens=usage.input_tokens,
        input_tokens_details=usage.input_tokens_details,
        output_tokens=usage.output_tokens,
        output_tokens_details=usage.output_tokens_details,
        total_tokens=usage.total_tokens,
    )
