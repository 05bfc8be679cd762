"""Sub-agents: runs within a run, with a path and a trace of their own in its journal.

So a trace is saved, rolled back and restored with everything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from holdfast.codec.codec import Codec
from holdfast.errors import UsageError
from holdfast.format.state import run_journal
from holdfast.format.state.run_journal import (
    EFFECT,
    FAILED,
    OK,
    STEP,
    TRACE,
    JournalRecord,
    RunJournal,
)
from holdfast.model import ids
from holdfast.model.run_policy import SubagentCall, SubagentTrace
from holdfast.operations import restore as restoring
from holdfast.operations import validate
from holdfast.operations.context import StoreContext
from holdfast.runs import call_sites, outcome
from holdfast.runs.engine import RunEngine

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Subagent:
    """The common base of both interfaces of a sub-agent."""

    _core: RunEngine
    _path: str

    def _begin(
        self, type_: str, subagent_id: str | None, prompt: Any, parent_tool_call_id: str | None, parent_path: str
    ) -> None:
        self.subagent_type = validate.name("subagent_type", type_)
        key = None if subagent_id is None else validate.name("subagent_id", subagent_id)
        self._place = self._core.sites.place(self._core.path(parent_path), self.subagent_type, key)
        self._path = f"{self._place}/"
        self._core.index.note_path(self._path)
        self.subagent_id = subagent_id if subagent_id is not None else self._place
        self._prompt = prompt
        self._parent_tool_call_id = parent_tool_call_id
        known = self._core.journal.get(f"{self._path}trace")
        self._started_us = known.started_us if known is not None else self._core.ctx.now_us()
        self._result: Any = None
        self._usage: dict[str, Any] = {}
        if (
            known is not None and known.status == OK
        ):  # else its usage is counted again, with the steps that are replayed
            kept = self._core.ctx.codec.decode(known.payload)
            self._result, self._usage = kept["result"], dict(kept["usage"])

    def _enter(self) -> None:
        """Begin its body, perhaps again. A caller may skip the body of one that `is_over`."""
        self._core.begin(self._path)
        if self._core.sites.forget_failure(self._path):
            self._core.try_again(self._path)

    @property
    def result(self) -> Any:
        """The result: set it before the end."""
        return self._result

    @result.setter
    def result(self, result: Any) -> None:
        self._result = result

    @property
    def is_over(self) -> bool:
        """Whether it came to its end in an earlier life: its `result` is there already."""
        if self._is_recorded():
            self._core.index.pass_over(self._path)  # a program that asks this skips the body
            return True
        return False

    def _is_recorded(self) -> bool:
        known = self._core.journal.get(f"{self._path}trace")
        return known is not None and known.status == OK

    def add_usage(self, usage: Mapping[str, Any]) -> None:
        """Add usage: tokens, money, any numbers under names."""
        for name, count in usage.items():
            if not isinstance(count, int | float | Decimal):
                raise UsageError(f"add_usage: {name!r:.60} is {count!r:.60}, and only numbers can be added up")
            self._usage[name] = self._usage.get(name, 0) + count

    async def _end(self, error: BaseException | None) -> None:
        """Writes its trace down. One that is written down already, and is the same, is left alone."""
        core = self._core
        if error is not None:
            core.sites.mark_failed(self._path)
            core.index.abandon(self._path, core.journal.entries)
        if self._is_recorded():
            return
        message = None
        if error is not None:
            message = core.ctx.codec.redact_text(f"{outcome.error_name(error)}: {error}", "exception")
        payload = core.ctx.codec.encode(
            {
                "id": self.subagent_id,
                "type": self.subagent_type,
                "prompt": self._prompt,
                "parent": self._parent_tool_call_id,
                "result": self._result,
                "error": message,
                "usage": self._usage,
            },
            f"the trace of sub-agent {self.subagent_type!r:.60}",
        )
        status = OK if error is None else FAILED
        now = core.ctx.now_us()
        number = core.record(JournalRecord(f"{self._path}trace", TRACE, status, payload, 1, self._started_us, now, []))
        if error is None:
            await core.after_step(self.subagent_type, number)


async def stored_traces(ctx: StoreContext, checkpoint: bytes) -> tuple[SubagentTrace, ...]:
    """Return the traces that a checkpoint holds; none, if no run made it."""
    found = await restoring.restore(ctx, checkpoint, migrate=False)
    if not isinstance(found.agent_context, dict):
        return ()
    _, kept, _ = run_journal.from_context(found.agent_context, f"checkpoint {found.checkpoint_id}")
    return traces(ctx.codec, kept)


def traces(codec: Codec, kept: RunJournal) -> tuple[SubagentTrace, ...]:
    """Return the traces of the sub-agents so far, in the order in which they ended."""
    return tuple(_trace(codec, kept, record) for record in kept if record.kind == TRACE)


def _trace(codec: Codec, recorded: RunJournal, record: JournalRecord) -> SubagentTrace:
    kept = codec.decode(record.payload)
    path = record.place.removesuffix("trace")
    paths = (item.place.removesuffix("trace") for item in recorded if item.kind == TRACE)
    others = tuple(item for item in paths if item.startswith(path) and item != path)  # of its own sub-agents

    inside_of_others = f"/{call_sites.nested_path(path)}"

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
            _tool_call(codec, item) for item in recorded if item.kind in (STEP, EFFECT) and is_own(item.place)
        ),
    )


def _tool_call(codec: Codec, record: JournalRecord) -> SubagentCall:
    failed = record.status == FAILED
    name = run_journal.name_of(record.place)
    return SubagentCall(
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
