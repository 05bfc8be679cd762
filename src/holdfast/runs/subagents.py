"""Sub-agents: runs within a run. Their steps are steps of the run, under a path of their own; what became of them is a trace
in its journal, so it is saved, rolled back and restored with everything else."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from holdfast.codec.codec import Codec
from holdfast.errors import UsageError
from holdfast.model import ids
from holdfast.model.runs import SubagentTrace, ToolCall
from holdfast.objects import journal
from holdfast.objects.journal import EFFECT, FAILED, OK, STEP, TRACE, Journal, Record
from holdfast.operations import arguments
from holdfast.operations import restore as restoring
from holdfast.operations.services import Services
from holdfast.runs import failures, frames
from holdfast.runs.core import Core

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Subagent:
    """What both faces of a sub-agent know of it."""

    _core: Core
    _path: str

    def _begin(
        self, type_: str, subagent_id: str | None, prompt: Any, parent_tool_call_id: str | None, parent_path: str
    ) -> None:
        self.subagent_type = arguments.name("subagent_type", type_)
        key = None if subagent_id is None else arguments.name("subagent_id", subagent_id)
        self._place = self._core.places.place(self._core.path(parent_path), self.subagent_type, key)
        self._path = f"{self._place}/"
        self.subagent_id = subagent_id if subagent_id is not None else self._place
        self._prompt = prompt
        self._parent_tool_call_id = parent_tool_call_id
        known = self._core.journal.get(f"{self._path}trace")
        self._started_us = known.started_us if known is not None else self._core.services.now_us()
        self._result: Any = None
        self._usage: dict[str, Any] = {}
        if (
            known is not None and known.status == OK
        ):  # else what it used is counted anew, with the steps that are replayed
            kept = self._core.services.codec.decode(known.payload)
            self._result, self._usage = kept["result"], dict(kept["usage"])

    def _enter(self) -> None:
        """Its body runs, again perhaps: whoever finds that it is over may pass over it instead."""
        self._core.places.begin(self._path)
        if self._core.places.forget_failure(self._path):
            self._core.try_again(self._path)

    @property
    def result(self) -> Any:
        """What it came to: set it before the end."""
        return self._result

    @result.setter
    def result(self, result: Any) -> None:
        self._result = result

    @property
    def is_over(self) -> bool:
        """Whether it came to its end in an earlier life: its `result` is there already."""
        known = self._core.journal.get(f"{self._path}trace")
        return known is not None and known.status == OK

    def add_usage(self, usage: Mapping[str, Any]) -> None:
        """Counts what it used: tokens, money, whatever has numbers under names."""
        for name, count in usage.items():
            if not isinstance(count, int | float | Decimal):
                raise UsageError(f"add_usage: {name!r:.60} is {count!r:.60}, and only numbers can be added up")
            self._usage[name] = self._usage.get(name, 0) + count

    async def _end(self, error: BaseException | None) -> None:
        """Writes its trace down. One that is written down already, and is the same, is left alone."""
        core = self._core
        if error is not None:
            core.places.fail(self._path)
            core.places.abandon(self._path, core.journal.entries)
        if self.is_over:
            return
        told = None if error is None else f"{failures.name_of(error)}: {error}"
        payload = core.services.codec.encode(
            {
                "id": self.subagent_id,
                "type": self.subagent_type,
                "prompt": self._prompt,
                "parent": self._parent_tool_call_id,
                "result": self._result,
                "error": told,
                "usage": self._usage,
            },
            f"the trace of sub-agent {self.subagent_type!r:.60}",
        )
        status = OK if error is None else FAILED
        now = core.services.now_us()
        number = core.record(Record(f"{self._path}trace", TRACE, status, payload, 1, self._started_us, now, []))
        if error is None:
            await core.after_step(self.subagent_type, number)


async def stored_traces(services: Services, checkpoint: bytes) -> tuple[SubagentTrace, ...]:
    """The traces that a checkpoint holds; none, if no run made it."""
    found = await restoring.restore(services, checkpoint, migrate=False)
    if not isinstance(found.agent_context, dict):
        return ()
    _, kept, _ = journal.from_context(found.agent_context, f"checkpoint {found.checkpoint_id}")
    return traces(services.codec, kept)


def traces(codec: Codec, kept: Journal) -> tuple[SubagentTrace, ...]:
    """What became of the sub-agents so far, in the order in which they ended."""
    return tuple(_trace(codec, kept, record) for record in kept if record.kind == TRACE)


def _trace(codec: Codec, recorded: Journal, record: Record) -> SubagentTrace:
    kept = codec.decode(record.payload)
    path = record.place.removesuffix("trace")
    paths = (one.place.removesuffix("trace") for one in recorded if one.kind == TRACE)
    others = tuple(one for one in paths if one.startswith(path) and one != path)  # of its own sub-agents

    inside_of_others = f"/{frames.beside(path)}"

    def is_own(place: str) -> bool:
        return (place.startswith(path) and not place.startswith(others)) or inside_of_others in place

    return SubagentTrace(
        subagent_id=kept["id"],
        subagent_type=kept["type"],
        parent_tool_call_id=kept["parent"],
        prompt=kept["prompt"],
        started_at=_moment(record.started_us),
        ended_at=_moment(record.ended_us),
        success=record.status == OK,
        result=kept["result"],
        error=kept["error"],
        usage=kept["usage"],
        tool_calls=tuple(
            _tool_call(codec, one) for one in recorded if one.kind in (STEP, EFFECT) and is_own(one.place)
        ),
    )


def _tool_call(codec: Codec, record: Record) -> ToolCall:
    failed = record.status == FAILED
    name = journal.name_of(record.place)
    return ToolCall(
        name=record.about[1] if record.kind == EFFECT else name,
        key=record.place,
        started_at=_moment(record.started_us),
        ended_at=_moment(record.ended_us),
        failed=failed,
        error=": ".join(codec.decode(record.payload)[:2]) if failed else None,
        effect_id=ids.to_text(bytes(record.about[0])) if record.kind == EFFECT else None,
    )


def _moment(us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=us)
