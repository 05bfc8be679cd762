"""Lists of AG2's events as plain data: what several events of a turn tell is stored once.

AG2 sends the calls of a response again, as a batch and one by one, each result again in a batch of
results, and the usage of a response ahead of it. Such an event is no element of the stored list.
The element before it, or the response itself, tells that it is there:

- `$usage` of a response: when the event with its usage was sent.
- `$after`: the events that follow the element. A number is a call of the last response, -1 the batch
  of its calls; a list has the time of a batch of results, and the places of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ag2.events import (
    BaseEvent,
    ModelResponse,
    ToolCallEvent,
    ToolCallsEvent,
    ToolResultEvent,
    ToolResultsEvent,
    UsageEvent,
)

from holdfast.adapters.ag2.events import TYPE, dump_event, load_event
from holdfast.errors import UsageError

_AFTER = "$after"
_USAGE = "$usage"
_BATCH = -1


def dump_events(events: Sequence[BaseEvent], first: int = 0) -> list[dict[str, Any]]:
    """Return events of one turn as plain data; `first` is the place of the first one in its history."""
    calls: dict[int, int] = {}  # by object: its number in the last response
    results: dict[int, int] = {}  # by object: its place
    dumped: list[dict[str, Any]] = []
    usage: UsageEvent | None = None
    for place, event in enumerate(events, first):
        following = events[place - first + 1] if place - first + 1 < len(events) else None
        if isinstance(event, UsageEvent) and _is_usage_of(event, following):
            usage = event
            continue
        shortened = _shorten_known_event(event, calls, results) if dumped else None
        if shortened is not None:
            dumped[-1].setdefault(_AFTER, []).append(shortened)
            continue
        plain = dump_event(event)
        dumped.append(plain)
        if isinstance(event, ModelResponse):
            if usage is not None:
                plain[_USAGE], usage = usage.created_at, None
            calls = {id(item): number for number, item in enumerate(event.tool_calls.calls)}
            calls[id(event.tool_calls)] = _BATCH
        elif isinstance(event, ToolResultEvent):
            results[id(event)] = place
    return dumped


def load_events(messages: Sequence[Mapping[str, Any]], before: Sequence[Any] = ()) -> list[Any]:
    """Return the events of stored elements, after those that were made of the elements `before`."""
    events = list(before)
    response: Any = next((item for item in reversed(events) if isinstance(item, ModelResponse)), None)
    for message in messages:
        event = load_event(message)
        if _USAGE in message:
            events.append(_usage_of(event, message))
        events.append(event)
        if isinstance(event, ModelResponse):
            response = event
        events.extend(_iterate_following(message, response, events) if _AFTER in message else ())
    return events


def _shorten_known_event(event: BaseEvent, calls: Mapping[int, int], results: Mapping[int, int]) -> Any:
    """Return what stands for an event that the events before it tell; None for any other."""
    if isinstance(event, (ToolCallsEvent, ToolCallEvent)):
        return calls.get(id(event))
    if isinstance(event, ToolResultsEvent) and all(id(result) in results for result in event.results):
        return [event.created_at, *(results[id(result)] for result in event.results)]
    return None


def _iterate_following(recorded: Mapping[str, Any], response: Any, events: Sequence[Any]) -> Iterator[Any]:
    known = list(events)
    try:
        for shortened in recorded[_AFTER]:
            if isinstance(shortened, list):
                yield ToolResultsEvent([known[place] for place in shortened[1:]], created_at=shortened[0])
            else:
                yield response.tool_calls if shortened == _BATCH else response.tool_calls.calls[shortened]
    except (AttributeError, IndexError, TypeError) as error:
        raise UsageError(
            f"a stored event can't be loaded: {recorded.get(TYPE)!r:.80} refers to events which the conversation lacks"
        ) from error


def _is_usage_of(event: UsageEvent, response: BaseEvent | None) -> bool:
    if not isinstance(response, ModelResponse) or event.kind != "model_call" or event.label or event.parts:
        return False
    names = ("usage", "model", "provider", "finish_reason")
    return all(getattr(event, name) == getattr(response, name) for name in names)


def _usage_of(event: Any, recorded: Mapping[str, Any]) -> UsageEvent:
    if not isinstance(event, ModelResponse):
        raise UsageError(f"a stored event can't be loaded: {recorded.get(TYPE)!r:.80} has no usage")
    return UsageEvent(
        event.usage,
        model=event.model,
        provider=event.provider,
        finish_reason=event.finish_reason,
        created_at=recorded[_USAGE],
    )
