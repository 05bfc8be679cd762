"""Middleware that records the model and tool calls of the turn that is under way.

It finds the turn in a context variable. So it may stay on agents that run inside a graph or another
agent, and outside a turn it passes every call on.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from weakref import WeakSet

from strands import Agent
from strands.event_loop.streaming import process_stream
from strands.interrupt import Interrupt, InterruptException
from strands.middleware import ExecuteToolStage, InvokeModelStage, ModelStopReason, ToolResultEvent
from strands.types.exceptions import ConcurrencyException

from holdfast.adapters.base.digest import digest
from holdfast.adapters.base.event_stream import Emit, stream_turn
from holdfast.adapters.base.shared_target import hold
from holdfast.adapters.base.turn import FrameworkTurn
from holdfast.adapters.strands.team import StrandsTeam, check_messages, is_agent_tool
from holdfast.errors import CorruptError, EffectNotDoneError
from holdfast.model.effect import EffectKind
from holdfast.model.tool_effect import AGENT

_recording: ContextVar[StrandsRecording | None] = ContextVar("holdfast_strands_recording", default=None)
_attached: WeakSet[Agent] = WeakSet()
_PASSING = ("cancelled", "max_tokens")  # ends of an answer after which the same request is worth another try
_IN_MEMORY = ("strands.multiagent.swarm", "strands.vended_tools.stop.stop")  # whose tools change objects only
_COUNTED = ("inputTokens", "outputTokens", "totalTokens")
_APART = ("tracking_id", "metadata")  # fields of a message that the model does not see


class ToolPausedError(EffectNotDoneError):
    """A tool has asked a person before it did anything; its argument is the question, as plain data."""


class StrandsRecording:
    """What the middleware of one turn shares."""

    def __init__(self, turn: FrameworkTurn, team: StrandsTeam) -> None:
        self.turn = turn
        self.calls: dict[str, tuple[str, dict[str, Any]]] = {}  # by id: tool and arguments, as the model wrote them
        self.changed_arguments: dict[str, Mapping[str, Any]] = {}  # by call: those that a person has approved instead
        self.refusals: dict[str, str] = {}  # by call: why it is not carried out
        self.broken_by: BaseException | None = None  # what has ended a tool without a result
        self._names = {id(agent): path or agent.name for path, agent in team.agents.items()}
        # The turn stands for the messages before it: to digest them all in each call would take long.
        self._digests = {_id_of(message): place.encode() for place, message in team.history() if _id_of(message)}

    def name_of(self, agent: Any) -> str:
        return self._names.get(id(agent)) or str(agent.name)

    def request_of(self, context: Any) -> dict[str, Any]:
        """Return what identifies a request. The system prompt is left out: it often has the time of day."""
        messages = list(context.messages)
        if context.dynamic_trailing_blocks and messages:  # they are made in each call, for that call
            last = dict(messages[-1])
            messages[-1] = {**last, "content": last["content"][: -context.dynamic_trailing_blocks], "tracking_id": ""}
        whole = hashlib.sha256()
        for message in messages:
            whole.update(self._digest(message))
        output = context.structured_output_model
        return {
            "messages": whole.hexdigest(),
            "tools": sorted(spec["name"] for spec in context.tool_specs),
            "tool_choice": context.tool_choice,
            "output": None if output is None else output.__name__,
        }

    def _digest(self, message: Mapping[str, Any]) -> bytes:
        id_ = _id_of(message)
        found = self._digests.get(id_)
        if found is None:
            found = digest({name: value for name, value in message.items() if name not in _APART}).encode()
            if id_:
                self._digests[id_] = found
        return found

    def note_calls(self, message: Mapping[str, Any]) -> None:
        for block in message["content"]:
            if "toolUse" in block:
                use = block["toolUse"]
                self.calls[use["toolUseId"]] = (use["name"], arguments_of(use["input"]))

    def is_passed_on(self, tool: Any) -> bool:
        """Return whether a tool is no call of its own: it runs an agent, or changes only objects."""
        declared = self.turn.find_effect(tool.tool_name, tool)
        if declared is not None:
            return bool(declared.kind == AGENT)
        if is_agent_tool(tool):
            attach(tool.agent)  # it may have become a tool during the turn
            return True
        return tool.tool_type == "structured_output" or getattr(tool, "__module__", None) in _IN_MEMORY


@contextmanager
def record_turn(turn: FrameworkTurn, team: StrandsTeam) -> Iterator[StrandsRecording]:
    """Put a team where its session stands, and record its calls. No other turn has its agents meanwhile."""
    with hold([*team.agents.values(), *team.groups.values()], "agent", ConcurrencyException):
        for agent in team.agents.values():
            attach(agent)
        team.load_turn(turn)
        recording = StrandsRecording(turn, team)
        token = _recording.set(recording)
        try:
            yield recording
        finally:
            _recording.reset(token)


def attach(agent: Agent) -> None:
    """Add the middleware to an agent, once: Strands has no way to remove it."""
    if agent not in _attached:
        _attached.add(agent)
        agent.add_middleware(InvokeModelStage, record_model)
        agent.add_middleware(ExecuteToolStage, record_tool)


def arguments_of(given: Any) -> dict[str, Any]:
    """Return the arguments of a call; those that the model did not write as an object, by a name of ours."""
    return dict(given) if isinstance(given, Mapping) else {"input": given}


def _id_of(message: Mapping[str, Any]) -> tuple[str, int] | None:
    """Return what tells a message from others within a turn, though Strands copies it in each call."""
    id_ = message.get("tracking_id")
    return (id_, len(message["content"])) if id_ else None


# -- the model ---------------------------------------------------------------------------------------------------------


async def record_model(context: Any, next_fn: Any) -> AsyncIterator[Any]:
    """Give the recorded answer to a request, or ask the model and record its answer."""
    recording = _recording.get()
    if recording is None:
        async for event in next_fn(context):
            yield event
        return
    if recording.broken_by is not None:
        raise recording.broken_by
    name, request = recording.name_of(context.agent), recording.request_of(context)
    async with recording.turn.open_model_call(name, request) as call:
        if call.answer is not None:
            with recording.turn.guard_record():
                check_messages([call.answer["message"]])
                _check_counts(call.answer)
                recording.note_calls(call.answer["message"])
                events = [event async for event in _replay(call.answer)]
            for event in events:
                yield event
            return
        async for event in next_fn(context):
            if isinstance(event, ModelStopReason) and event.stop_reason not in _PASSING:
                recording.note_calls(event.message)
                await call.record(
                    {
                        "message": dict(event.message),
                        "stop_reason": event.stop_reason,
                        "usage": dict(event.usage),
                        "metrics": dict(event.metrics),
                    }
                )
            yield event


def _check_counts(answer: Mapping[str, Any]) -> None:
    """Raise `CorruptError` for what Strands could not add up."""
    counted = [answer["usage"][name] for name in _COUNTED] + [answer["metrics"]["latencyMs"]]
    if not all(isinstance(number, int | float) and math.isfinite(number) for number in counted):
        raise CorruptError(f"the usage of a recorded answer is none of Strands: {counted!r:.100}")


async def _replay(answer: Mapping[str, Any]) -> AsyncIterator[Any]:
    """Yield the events of a recorded answer: each block whole, where the model had streamed parts."""
    async for event in process_stream(_chunks(answer["message"], answer["stop_reason"])):
        if not isinstance(event, ModelStopReason):
            yield event
    yield ModelStopReason(answer["stop_reason"], answer["message"], answer["usage"], answer["metrics"])


async def _chunks(message: Mapping[str, Any], stop_reason: str) -> AsyncIterator[Any]:
    yield {"messageStart": {"role": message["role"]}}
    for block in message["content"]:
        start, delta = _start_and_delta(block)
        if delta is not None:
            yield {"contentBlockStart": {"start": start}}
            yield {"contentBlockDelta": {"delta": delta}}
            yield {"contentBlockStop": {}}
    yield {"messageStop": {"stopReason": stop_reason}}


def _start_and_delta(block: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any] | None]:
    match block:
        case {"text": str() as text}:
            return {}, {"text": text}
        case {"reasoningContent": {"reasoningText": {"text": str() as text}}}:
            return {}, {"reasoningContent": {"text": text}}
        case {"toolUse": {"toolUseId": id_, "name": name, "input": given}}:
            return {"toolUse": {"toolUseId": id_, "name": name}}, {"toolUse": {"input": json.dumps(given, default=str)}}
    return {}, None  # the message has it all the same


# -- tools -------------------------------------------------------------------------------------------------------------


async def record_tool(context: Any, next_fn: Any) -> AsyncIterator[Any]:
    """Give the recorded result of a tool call, or make the call as the tool was declared."""
    recording = _recording.get()
    if recording is None or context.tool is None or recording.is_passed_on(context.tool):
        async for event in next_fn(context):
            yield event
        return
    id_ = context.tool_use["toolUseId"]
    if id_ in recording.refusals:
        yield _event(id_, _error(recording.refusals[id_]))
        return

    async def take(emit: Emit) -> None:
        emit(await _ToolCall(recording, context, next_fn, emit).make())

    try:
        async for event in stream_turn(take):
            yield event
    except (Exception, GeneratorExit):
        raise
    except BaseException as error:  # the executor of Strands drops it, and would go on without a result
        recording.broken_by = error
        raise


class _ToolCall:
    """One call of a tool, recorded with what it changed in the agent's state."""

    def __init__(self, recording: StrandsRecording, context: Any, next_fn: Any, emit: Emit) -> None:
        self._recording = recording
        self._context = context
        self._next = next_fn
        self._emit = emit
        self._made: Mapping[str, Any] | None = None  # what this life has recorded

    async def make(self) -> ToolResultEvent:
        recording, context, use = self._recording, self._context, self._context.tool_use
        id_, tool, agent = use["toolUseId"], context.tool, context.agent
        self._arguments = dict(recording.changed_arguments.get(id_, arguments_of(use["input"])))
        declared = recording.turn.find_effect(tool.tool_name, tool)
        self._is_effect = declared is not None and declared.kind != EffectKind.READ
        recorded = await recording.turn.call_tool(
            tool.tool_name,
            self._arguments,
            self._call,
            call_id=id_ if id_ in recording.calls else None,  # Strands makes up the ids of a program's own calls
            function=tool,
            answer=_error,
            failed=self._report_failure,
            raises=(ToolPausedError,),
        )
        is_result = isinstance(recorded, Mapping) and ("content" in recorded or "interrupt" in recorded)
        result = recorded if is_result else _success(recorded)  # of a text, or of what a probe has found
        with recording.turn.guard_record():
            interrupt = Interrupt(**result["interrupt"]) if "interrupt" in result else None
            if self._made is None:
                for name, value in result.get("state", {}).items():
                    agent.state.set(name, value)
                for name in result.get("dropped", ()):
                    agent.state.delete(name)
        if interrupt is not None:
            raise InterruptException(interrupt)
        return _event(id_, result)

    async def _call(self, **kept: Any) -> Any:
        context, use = self._context, self._context.tool_use
        if kept != arguments_of(use["input"]):  # a person has approved others
            context = context.replace(tool_use={**use, "input": kept})
        before = context.agent.state.get()
        async for event in self._next(context):
            if "tool_interrupt_event" in event:
                self._made = {"interrupt": _question(event["tool_interrupt_event"]["interrupts"][0])}
            elif isinstance(event, ToolResultEvent):
                self._made = _dump(event, before, context.agent.state.get())
                if event.exception is not None and self._is_effect:
                    raise event.exception  # the ledger must see it
            else:
                self._emit(event)
        made = self._made or _error(f"Tool {use['name']!r} did not return a result")
        if "interrupt" in made and self._is_effect:
            raise ToolPausedError(made["interrupt"])
        return _text_of(made)

    def _report_failure(self, error: Exception) -> Any:
        if isinstance(error, ToolPausedError):
            return {"interrupt": error.args[0]}
        return self._made or _error(f"Error: {error}")


def _dump(event: Any, before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result as plain data, with what the tool has changed in the agent's state."""
    made = {name: copy.deepcopy(value) for name, value in event.tool_result.items() if name != "toolUseId"}
    if event.exception is not None:
        made["exception"] = str(event.exception)
    changed = {name: value for name, value in after.items() if name not in before or before[name] != value}
    dropped = [name for name in before if name not in after]
    return made | ({"state": changed} if changed else {}) | ({"dropped": dropped} if dropped else {})


def _text_of(made: Mapping[str, Any]) -> Any:
    """Return a result as the text alone, if it is nothing else."""
    match made:
        case {"status": "success", "content": [{"text": str() as text, **more}], **rest} if not more and not rest:
            return text
    return made


def _success(text: Any) -> dict[str, Any]:
    shown = text if isinstance(text, str) else json.dumps(text, default=str, ensure_ascii=False)
    return {"status": "success", "content": [{"text": shown}]}


def _error(text: str) -> dict[str, Any]:
    return {"status": "error", "content": [{"text": text}]}


def _event(id_: str, result: Mapping[str, Any]) -> ToolResultEvent:
    shown = {name: value for name, value in result.items() if name not in ("exception", "state", "dropped")}
    exception = Exception(result["exception"]) if "exception" in result else None
    return ToolResultEvent({"toolUseId": id_, **shown}, exception=exception)


def _question(interrupt: Interrupt) -> dict[str, Any]:
    return {"id": interrupt.id, "name": interrupt.name, "reason": as_plain(interrupt.reason)}


def as_plain(value: Any) -> Any:
    """Return a value as JSON has it; what JSON lacks, as text."""
    return json.loads(json.dumps(value, default=str))
