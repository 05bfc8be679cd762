"""The state of an agent loop: immutable, so an older one is never changed by a newer one.

Each `with_*` returns a new state with a new `id`. `to_json` and `from_json` preserve everything:
ids and times of messages, the plan and its progress, the traces of sub-agents.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Self

from holdfast.errors import NewerVersionError, UsageError
from holdfast.model.frozen import FrozenDict, FrozenList, freeze, thaw
from holdfast.model.run_policy import SubagentCall, SubagentTrace

VERSION = 1
UAP_VERSION = "1.0.0"  # of @providerprotocol/agents, whose states are read


class PlanStatus(StrEnum):
    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStep:
    """A step of a plan."""

    id: str
    description: str
    tool: str | None = None
    depends_on: Sequence[str] = ()
    status: PlanStatus = PlanStatus.PENDING

    def __post_init__(self) -> None:
        if isinstance(self.depends_on, str):  # a tuple of it would be its letters
            raise UsageError(f"plan step {self.id!r:.60}: depends_on is a str: give a list of ids")
        object.__setattr__(self, "depends_on", tuple(self.depends_on))
        try:
            object.__setattr__(self, "status", PlanStatus(self.status))
        except ValueError:
            raise UsageError(
                f"the status of plan step {self.id!r:.60} is {self.status!r:.60}: it must be one of "
                f"{', '.join(PlanStatus)}"
            ) from None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AgentState:
    """The state of an agent: its conversation, its number of steps, and its other knowledge."""

    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    messages: Sequence[Mapping[str, Any]] = field(default_factory=FrozenList)
    step: int = 0
    metadata: Mapping[str, Any] = field(default_factory=FrozenDict)
    reasoning: tuple[str, ...] = ()
    plan: tuple[PlanStep, ...] | None = None
    subagent_traces: tuple[SubagentTrace, ...] = ()

    @classmethod
    def initial(cls) -> Self:
        return cls()

    # -- new states --------------------------------------------------------------------------------------------------

    def with_message(self, message: Mapping[str, Any]) -> Self:
        """Return the state with one more message, which gets an `id` and a `timestamp` if it has none."""
        return self.with_messages([message])

    def with_messages(self, messages: Iterable[Mapping[str, Any]]) -> Self:
        return self._with(messages=FrozenList([*self.messages, *map(_message, messages)]))

    def with_message_at(self, index: int, message: Mapping[str, Any]) -> Self:
        """Return the state with one more message, before that of this index."""
        return self._with(messages=FrozenList([*self.messages[:index], _message(message), *self.messages[index:]]))

    def with_context(self, messages: Iterable[Mapping[str, Any]]) -> Self:
        """Return the state with these messages instead of all: after pruning or summarising."""
        return self._with(messages=FrozenList(map(_message, messages)))

    def with_step(self, step: int) -> Self:
        """Return the state at that step. The count continues through resumes and never goes back."""
        if not isinstance(step, int) or isinstance(step, bool) or step < self.step:
            raise UsageError(f"step is {step!r}: the state is at step {self.step} already, and steps don't go back")
        return self._with(step=step)

    def with_metadata(self, key: str, value: Any) -> Self:
        return self._with(metadata=FrozenDict({**self.metadata, key: freeze(value)}))

    def without_metadata(self, key: str) -> Self:
        return self._with(metadata=FrozenDict({name: value for name, value in self.metadata.items() if name != key}))

    def with_reasoning(self, thought: str) -> Self:
        return self._with(reasoning=(*self.reasoning, thought))

    def with_plan(self, plan: Iterable[PlanStep | Mapping[str, Any]] | None) -> Self:
        if plan is None:
            return self._with(plan=None)
        steps = tuple(step if isinstance(step, PlanStep) else _make_plan_step(step) for step in plan)
        if len({step.id for step in steps}) != len(steps):
            raise UsageError("two steps of the plan have the same id")
        return self._with(plan=steps)

    def with_plan_status(self, step_id: str, status: str) -> Self:
        """Return the state with another status for that step of the plan. Older states keep their plan."""
        steps = self.plan or ()
        if status not in tuple(PlanStatus):
            raise UsageError(f"status is {status!r:.60}: it must be one of {', '.join(PlanStatus)}")
        if not any(step.id == step_id for step in steps):
            raise UsageError(f"the plan has no step {step_id!r:.60}")
        changed = [replace(step, status=PlanStatus(status)) if step.id == step_id else step for step in steps]
        return self._with(plan=tuple(changed))

    def with_subagent_trace(self, trace: SubagentTrace) -> Self:
        return self._with(subagent_traces=(*self.subagent_traces, trace))

    def _with(self, **changes: Any) -> Self:
        return replace(self, id=str(uuid.uuid4()), **changes)

    # -- as data -----------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Return the state as plain dicts and lists, which are the caller's own.

        JSON can express all of it, if it can express the contents of messages and metadata: their
        values are as they were given.
        """
        return {
            "version": VERSION,
            "id": self.id,
            "messages": thaw(self.messages),
            "step": self.step,
            "metadata": thaw(self.metadata),
            "reasoning": list(self.reasoning),
            "plan": None if self.plan is None else [_plan_fields(plan_step) for plan_step in self.plan],
            "subagent_traces": [_trace_fields(subagent_trace) for subagent_trace in self.subagent_traces],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Return the state of `to_json`, or one of @providerprotocol/agents (UAP 1.0.0)."""
        if not isinstance(data, Mapping) or "version" not in data:
            raise UsageError("this is no state of an agent loop: it has no version. `AgentState.to_json` makes one")
        version = data["version"]
        if version not in (VERSION, UAP_VERSION):
            raise NewerVersionError(
                f"this state of an agent loop has version {version!r:.20}, and this holdfast knows {VERSION} (and "
                f"{UAP_VERSION!r} of UAP): a newer program has written it. It is left as it is: upgrade to go on"
            )
        try:
            plan = data.get("plan")
            traces = data.get("subagent_traces", data.get("subagentTraces")) or ()
            return cls(
                id=data["id"],
                messages=FrozenList(map(freeze, data["messages"])),
                step=data["step"],
                metadata=freeze(data["metadata"]),
                reasoning=tuple(data["reasoning"]),
                plan=None if plan is None else tuple(map(_plan_step, plan)),
                subagent_traces=tuple(map(_trace, traces)),
            )
        except KeyError as error:
            raise UsageError(f"this is no state of an agent loop: it has no {error}") from error
        except (TypeError, AttributeError, ValueError) as error:
            raise UsageError(f"this is no state of an agent loop: {error!r:.200}") from error

    # -- text --------------------------------------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """The last text of the model."""
        for message in reversed(self.messages):
            if message.get("role") == "assistant" and message.get("content"):
                return str(message["content"])
        return ""

    def __repr__(self) -> str:
        return f"<AgentState step {self.step}, {len(self.messages)} messages, {self.id[:8]}>"


def _make_plan_step(given: Mapping[str, Any]) -> PlanStep:
    try:
        return PlanStep(**given)
    except TypeError:
        raise UsageError(
            f"{given!r:.80} is no step of a plan: it has an id and a description, and may have tool, "
            "depends_on and status"
        ) from None


def _message(message: Mapping[str, Any]) -> FrozenDict:
    if not isinstance(message, Mapping) or "role" not in message:
        raise UsageError(f"{message!r:.80} is no message: it must be a dict with a role, such as "
                         "{'role': 'user', 'content': 'hello'}")  # fmt: skip
    own = {"id": str(uuid.uuid4()), "timestamp": get_now(), **message}
    return freeze(own)  # type: ignore[no-any-return]  # of a dict it is a FrozenDict


def get_now() -> str:
    return format_moment(datetime.now(UTC))


def format_moment(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _moment(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value
    if isinstance(value, int | float):
        return datetime.fromtimestamp(value / 1000, UTC)  # UAP: milliseconds
    return datetime.fromisoformat(value)


def _plan_fields(step: PlanStep) -> dict[str, Any]:
    return {
        "id": step.id,
        "description": step.description,
        "tool": step.tool,
        "depends_on": list(step.depends_on),
        "status": str(step.status),
    }


def _plan_step(fields: Mapping[str, Any]) -> PlanStep:
    return PlanStep(
        id=fields["id"],
        description=fields["description"],
        tool=fields.get("tool"),
        depends_on=tuple(fields.get("depends_on", fields.get("dependsOn")) or ()),
        status=PlanStatus(fields["status"]),
    )


def _trace_fields(trace: SubagentTrace) -> dict[str, Any]:
    return {
        "subagent_id": trace.subagent_id,
        "subagent_type": trace.subagent_type,
        "parent_tool_call_id": trace.parent_tool_call_id,
        "prompt": thaw(trace.prompt),
        "started_at": trace.started_at.isoformat(),
        "ended_at": trace.ended_at.isoformat(),
        "success": trace.success,
        "result": thaw(trace.result),
        "error": trace.error,
        "tool_calls": [
            {
                "name": tool_call.name,
                "key": tool_call.key,
                "started_at": tool_call.started_at.isoformat(),
                "ended_at": tool_call.ended_at.isoformat(),
                "failed": tool_call.failed,
                "error": tool_call.error,
                "effect_id": tool_call.effect_id,
            }
            for tool_call in trace.tool_calls
        ],
        "usage": thaw(dict(trace.usage)),
    }


def _trace(fields: Mapping[str, Any]) -> SubagentTrace:
    if "subagentId" in fields:
        return _uap_trace(fields)
    calls = [
        SubagentCall(
            **{**tool_call, "started_at": _moment(tool_call["started_at"]), "ended_at": _moment(tool_call["ended_at"])}
        )
        for tool_call in fields["tool_calls"]
    ]
    times = {"started_at": _moment(fields["started_at"]), "ended_at": _moment(fields["ended_at"])}
    return SubagentTrace(**{**fields, **times, "tool_calls": tuple(calls), "usage": freeze(fields["usage"])})


def _uap_trace(fields: Mapping[str, Any]) -> SubagentTrace:
    started, ended = _moment(fields["startTime"]), _moment(fields["endTime"])
    calls = [
        SubagentCall(
            name=tool_execution["toolName"],
            key=tool_execution.get("toolCallId") or "",
            started_at=started,
            ended_at=ended,
            failed=bool(tool_execution.get("isError")),
        )
        for tool_execution in fields.get("toolExecutions") or ()
    ]
    return SubagentTrace(
        subagent_id=fields["subagentId"],
        subagent_type=fields["subagentType"],
        parent_tool_call_id=fields.get("parentToolCallId"),
        prompt=fields["prompt"],
        started_at=started,
        ended_at=ended,
        success=fields["success"],
        result=fields.get("result"),
        error=fields.get("error"),
        tool_calls=tuple(calls),
        usage=freeze(fields.get("usage") or {}),
    )
