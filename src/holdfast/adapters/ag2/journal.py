"""The journal of a turn: the model and tool calls of an agent and its sub-agents go through it."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import warnings
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy, deepcopy
from typing import Any

from ag2.context import ConversationContext
from ag2.events import (
    BaseEvent,
    ClientToolCallEvent,
    ModelMessageChunk,
    ModelResponse,
    ToolCallEvent,
    ToolErrorEvent,
    ToolResult,
    ToolResultEvent,
)
from ag2.exceptions import HumanInputError

from holdfast.adapters.ag2.conversation import EventLog
from holdfast.adapters.ag2.events import TYPE, dump_event, dump_value, load_event, load_response, load_value
from holdfast.adapters.base.turn import CallPausedError, FrameworkTurn, TurnEndedError
from holdfast.errors import CorruptError, HoldfastWarning
from holdfast.model.effect import EffectKind
from holdfast.model.tool_effect import AGENT

_RESULT = "$result"
# Functions of AG2 that run agents, whose own calls are recorded.
_AGENTS = ("function:ag2.tools.subagents.", "function:ag2.agent:_build_subtask_toolkit.")
LLMCall = Callable[[Sequence[BaseEvent], ConversationContext], Awaitable[ModelResponse]]
_current: ContextVar[TurnJournal | None] = ContextVar("holdfast_ag2_journal", default=None)
_body: ContextVar[_ToolBody | None] = ContextVar("holdfast_ag2_body", default=None)


class TurnInterruptedError(HumanInputError):
    """The turn can't continue. AG2 passes errors of human input on, from sub-agents and tools, too."""


class _ToolBody:
    """A tool call that is under way, and the one that it is made in."""

    def __init__(self, call_id: str, outer: _ToolBody | None) -> None:
        self.call_id = call_id
        self.outer = outer


class TurnJournal:
    """What the calls of one turn share."""

    def __init__(self, turn: FrameworkTurn, log: EventLog, sources: Collection[str], *, asks_people: bool) -> None:
        self.turn = turn
        self.log = log
        self.sources = sources  # of the tools whose calls are recorded by their class
        self.asks_people = asks_people  # there is no hook of the user's: questions wait in `holdfast approvals`
        self.changed_arguments: dict[str, Mapping[str, Any]] = {}  # by call: those that a person has approved instead
        self._is_open = True
        self._bodies: set[_ToolBody] = set()
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    @contextmanager
    def current(self) -> Iterator[None]:
        """Record the calls that are made in this context."""
        token = _current.set(self)
        try:
            yield
        finally:
            self._is_open = False
            _current.reset(token)

    # -- calls ---------------------------------------------------------------------------------------------------------

    async def call_model(
        self, agent: str, events: Sequence[BaseEvent], context: ConversationContext, call: LLMCall
    ) -> ModelResponse:
        """Return the recorded response to a request, or ask the model.

        What the model's client publishes while it is asked is recorded, too, but for parts of a stream.
        """
        is_replayed = True

        async def ask() -> dict[str, Any]:
            nonlocal is_replayed
            is_replayed = False
            heard = RecordedContext(
                **{field.name: getattr(context, field.name) for field in dataclasses.fields(context)}
            )
            heard.original, heard.published = context, []
            response = await call(events, heard)
            kept = [dump_event(item) for item in heard.published if not getattr(type(item), "__transient__", False)]
            is_streamed = any(isinstance(item, ModelMessageChunk) for item in heard.published)
            plain: dict[str, Any] = {"response": dump_event(response)}
            return plain | ({"events": kept} if kept else {}) | ({"streamed": True} if is_streamed else {})

        with raise_interrupts():
            recorded = await self.turn.call_model(agent, {"messages": self.log.digest(events)}, ask)
        with raise_interrupts(), self.turn.guard_record():
            response = load_response(recorded["response"])
            events = [load_event(event) for event in recorded.get("events", ())] if is_replayed else []
        if is_replayed:
            for event in events:
                await context.send(event)
            if response.message is not None:
                if recorded.get("streamed"):
                    await context.send(ModelMessageChunk(response.message.content))
                await context.send(response.message)
        return response

    async def call_tool(
        self,
        event: ToolCallEvent,
        context: ConversationContext,
        execute: Callable[[ToolCallEvent, ConversationContext], Awaitable[Any]],
        function: Any = None,
    ) -> Any:
        """Return the recorded result of a tool call, or make the call as the tool was declared."""
        try:
            arguments = event.serialized_arguments
        except ValueError:
            arguments = None
        declared = self.turn.find_effect(event.name, function)
        is_agent = (event.source or "").startswith(_AGENTS) if declared is None else declared.kind == AGENT
        if is_agent or not isinstance(arguments, dict):  # AG2 tells the model that the arguments are wrong
            return await execute(event, context)
        arguments = dict(self.changed_arguments.get(event.id, arguments))
        is_effect = declared is not None and declared.kind != EffectKind.READ
        is_replayed, failed = True, list[ToolErrorEvent]()

        async def call(**given: Any) -> Any:
            nonlocal is_replayed
            is_replayed = False
            before = copy_variables(context.variables)
            made = copy(event)
            made.arguments, made.serialized_arguments = json.dumps(given), given
            try:
                result = await execute(made, context)
            except HumanInputError as error:
                raise CallPausedError from error
            if isinstance(result, ToolErrorEvent):
                failed.append(result)
                if is_effect:
                    raise result.error  # the ledger must see it
            return _dump_result(result, self._changes(before, context.variables))

        def dump_failure(error: Exception) -> Any:
            return _dump_result(failed[-1] if failed else ToolErrorEvent.from_call(event, error), {})

        body = _ToolBody(event.id, _body.get())
        self._bodies.add(body)
        self._is_idle.clear()
        token = _body.set(body)
        try:
            with raise_interrupts():
                recorded = await self.turn.call_tool(
                    event.name, arguments, call, call_id=event.id, function=function, failed=dump_failure
                )
        finally:
            _body.reset(token)
            self._leave(body)
        with raise_interrupts(), self.turn.guard_record():
            return _load_result(recorded, event, context.variables if is_replayed else {})

    def _changes(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
        """Return the variables that a tool has set or removed: a replay does not call the tool."""
        made = {name: value for name, value in after.items() if name not in before or before[name] != value}
        for name, value in made.items():
            if not self.turn.is_storable(value):
                warnings.warn(
                    f"a tool has set the variable {name!r:.60} to a {type(value).__name__}, which can't be stored: it "
                    "is lost in a crash. Keep such objects in dependencies",
                    HoldfastWarning,
                    stacklevel=2,
                )
        made = {name: value for name, value in made.items() if self.turn.is_storable(value)}
        removed = [name for name in before if name not in after]
        return ({"set": made} if made else {}) | ({"removed": removed} if removed else {})

    def is_begun(self, call_id: str) -> bool:
        """Return whether a call is under way: its arguments can't be changed any more."""
        return any(body.call_id == call_id for body in self._bodies)

    # -- ends ----------------------------------------------------------------------------------------------------------

    async def wait_for_calls(self) -> None:
        """Wait until no tool is under way: AG2 cancels the others when one of parallel calls ends the turn."""
        body = _body.get()
        while body is not None:
            self._leave(body)
            body = body.outer
        await self._is_idle.wait()

    def _leave(self, body: _ToolBody) -> None:
        self._bodies.discard(body)
        if not self._bodies:
            self._is_idle.set()


def find_journal() -> TurnJournal | None:
    """Return the journal of the turn that is under way; a task that has outlived its turn has none."""
    journal = _current.get()
    return journal if journal is not None and journal._is_open else None


def is_recorded(call_id: str) -> bool:
    """Return whether the current call is recorded already, by the middleware of its agent."""
    body = _body.get()
    return body is not None and body.call_id == call_id


@contextmanager
def raise_interrupts() -> Iterator[None]:
    """Raise the end of a turn, or what has paused a call, as an error that AG2 passes on."""
    try:
        yield
    except CallPausedError as error:
        raise (error.__cause__ or error) from None
    except TurnEndedError as error:
        raise TurnInterruptedError(str(error)) from error


class RecordedContext(ConversationContext):
    """The context that a model's client gets: it notes what the client publishes."""

    original: ConversationContext
    published: list[BaseEvent]

    async def send(self, event: BaseEvent) -> None:
        self.published.append(event)
        await self.original.send(event)


# -- results as plain data ---------------------------------------------------------------------------------------------


def copy_variables(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return variables as they are now; what can't be copied is compared by identity."""
    kept = {}
    for name, value in variables.items():
        try:
            kept[name] = deepcopy(value)
        except Exception:  # whatever the user's class raises
            kept[name] = value
    return kept


def _dump_result(result: Any, changes: Mapping[str, Any]) -> Any:
    """Return the result of a tool as plain data: what the function has returned, if that says it all."""
    if isinstance(result, (ToolErrorEvent, ClientToolCallEvent)):
        return {_RESULT: "event", "event": dump_event(result), "variables": dict(changes)}
    given: ToolResult = result.result
    plain = dump_value(given)
    match plain:
        case {"parts": [{"$type": "TextInput", "content": str(text), **rest}], **more} if not changes:
            if not rest and more.keys() == {TYPE}:
                return text
        case {"parts": [{"$type": "DataInput", "data": data, **rest}], **more} if not changes:
            if not rest and more.keys() == {TYPE} and not isinstance(data, str | dict):
                return data
            if not rest and more.keys() == {TYPE} and isinstance(data, dict) and _RESULT not in data:
                return data
    return {_RESULT: "result", "result": plain, "variables": dict(changes)}


def _load_result(recorded: Any, event: ToolCallEvent, variables: dict[str, Any]) -> Any:
    """Return a recorded result as an event, and repeat the tool's changes of variables."""
    if not isinstance(recorded, Mapping) or _RESULT not in recorded:
        return ToolResultEvent.from_call(event, load_value(recorded))
    changes = recorded.get("variables", {})
    variables.update(changes.get("set", {}))
    for name in changes.get("removed", ()):
        variables.pop(name, None)
    if recorded[_RESULT] == "event":
        loaded = load_event(recorded["event"])
        if not isinstance(loaded, (ToolErrorEvent, ClientToolCallEvent)):
            raise CorruptError(f"the recorded result of {event.name!r:.60} is a {type(loaded).__name__}")
        return loaded
    return ToolResultEvent.from_call(event, load_value(recorded["result"]))
