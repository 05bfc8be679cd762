"""The replay of a program of `client.run` from an earlier checkpoint, in a session of its own.

The mode decides when the records of the earlier run are served. `recorded`: always, and calls
without a record are not made either. `live`: never. `mixed`: as long as steps have the same inputs
as then. The first step with other inputs is called, and so is everything after it: its result may
differ. Effects that are not served follow the ledger, as in any fork.
"""

from __future__ import annotations

import contextvars
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from holdfast.codec.codec import Codec
from holdfast.errors import HoldfastError, LeaseLostError, NotRecordedError, StoreError, UsageError
from holdfast.format.state import run_journal
from holdfast.format.state.diff import Differ
from holdfast.format.state.run_journal import (
    EFFECT,
    FAILED,
    OK,
    STEP,
    JournalRecord,
    RunJournal,
)
from holdfast.model.diff import Edit
from holdfast.model.effect import OnRepeat
from holdfast.model.lease import DEFAULT_SECONDS
from holdfast.model.replay import ReplayedStep
from holdfast.runs import api, current
from holdfast.runs import step as stepping
from holdfast.runs.call_sites import CallSites, EffectCall, is_same_keyed_effect
from holdfast.runs.engine import RunEngine, RunOptions
from holdfast.runs.ledger_match import EffectIndex
from holdfast.runs.step import StepCall, ValueCall

AnyCall: TypeAlias = StepCall | EffectCall | ValueCall
_current_place: contextvars.ContextVar[str | None] = contextvars.ContextVar("holdfast_replay", default=None)


@dataclass(slots=True)
class _Step:
    """A requested step, and its records so far."""

    name: str
    kind: str
    was: JournalRecord | None
    was_called: bool = False
    record: JournalRecord | None = None
    note: str | None = None


@dataclass(slots=True, kw_only=True)
class Replay:
    """The options of a replay, and its steps so far.

    `from_start` says that the checkpoint's own journal is not part of its past: every step is
    replayed.
    """

    mode: str
    original: Mapping[str, JournalRecord]
    choices: Mapping[str, str] = field(default_factory=dict)  # by name of step: "recorded" or "live"
    on_repeat: OnRepeat | None = None
    from_start: bool = False
    has_parted: bool = False
    steps: dict[str, _Step] = field(default_factory=dict)

    def is_served(self, codec: Codec, call: AnyCall, was: JournalRecord | None) -> bool:
        """Return whether the recorded result is served. Raise if there is none and the mode calls nothing."""
        mode = self.choices.get(call.name, self.mode)
        is_recorded = was is not None and was.status in (OK, FAILED)
        if mode == "recorded" and not is_recorded:
            raise NotRecordedError(
                f"nothing was recorded of {call.name!r:.60} ({call.place!r:.80}), and this replay calls nothing that "
                f"was not: replay with mode='mixed' or 'live', or with steps={{{call.name!r:.60}: 'live'}}"
            )
        if mode == "mixed":
            if not is_recorded or self.has_parted or (was is not None and not _has_same_inputs(codec, call, was)):
                self.has_parted = True
            return not self.has_parted
        return mode == "recorded"


def _has_same_inputs(codec: Codec, call: AnyCall, was: JournalRecord) -> bool:
    """Return whether a call has the recorded inputs; without a record of them it does not.

    An effect always does: its place has its identity in it.
    """
    if isinstance(call, EffectCall):
        return True
    now = stepping.inputs(codec, call)
    return bool(now) and now == [bytes(item) for item in was.about]


class ReplayCore(RunEngine):
    """A run that is given what an earlier one recorded."""

    replay: Replay
    consumes = False
    is_from_start = False

    async def open(self) -> None:
        await super().open()
        self.is_from_start = self.replay.from_start
        if self.is_from_start:
            self.journal = RunJournal(version=self.journal.version)
            self.sites, self.index = CallSites(), EffectIndex()
            self.task_lists = {}
        ask = self.call

        async def call(fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
            place = _current_place.get()
            if place in self.replay.steps:
                self.replay.steps[place].was_called = True
            return await ask(fn, args, kwargs)

        self.call = call

    def _find_value(self, call: ValueCall) -> JournalRecord | None:
        """Return the record of a step whose value the caller makes otherwise."""
        replay = self.replay
        own, was = super().find_record(call), self._get_recorded(call)
        is_live = replay.choices.get(call.name) == "live"
        if call.is_optional:
            if own is not None or was is None or is_live or replay.mode == "live" or replay.has_parted:
                return own
            self.record(was)
            return was
        step = replay.steps[call.place] = _Step(call.name, STEP, was)
        if own is not None and not is_live:
            step.record = own
            return own
        if not self._is_served(call, was, step):
            step.was_called = True
            return None
        assert was is not None
        self.record(was)
        return was

    def find_record(self, call: AnyCall) -> JournalRecord | None:
        if isinstance(call, ValueCall):
            return self._find_value(call)
        if isinstance(call, StepCall) and hasattr(call.fn, stepping.KNOWN_VALUE):
            _current_place.set(None)
            return super().find_record(call)
        replay = self.replay
        own, was = super().find_record(call), self._get_recorded(call)
        kind = EFFECT if isinstance(call, EffectCall) else STEP
        step = replay.steps[call.place] = _Step(call.name, kind, was)
        _current_place.set(call.place)
        if own is not None and replay.choices.get(call.name) != "live":
            step.record = own
            return own
        if isinstance(call, EffectCall) and call.on_repeat is None:
            call.on_repeat = replay.on_repeat
        if not self._is_served(call, was, step):
            return None
        assert was is not None
        self.record(was)  # part of this line of execution from now on
        return was

    def _is_served(self, call: AnyCall, was: JournalRecord | None, step: _Step) -> bool:
        try:
            return self.replay.is_served(self.ctx.codec, call, was)
        except NotRecordedError:
            step.note = "nothing was recorded"
            raise

    def _get_recorded(self, call: AnyCall) -> JournalRecord | None:
        """Return the original's record of the call, perhaps under the place of an earlier version."""
        original = self.replay.original
        if not isinstance(call, EffectCall) or call.place in original:
            return original.get(call.place)
        former = next((item.place for item in call.formers if item.place in original), None)
        if former is None and call.key is not None:
            former = next((at for at in original if is_same_keyed_effect(at, call.place)), None)
        return None if former is None else original[former]._replace(place=call.place)

    def record(self, record: JournalRecord, raised: BaseException | None = None) -> int:
        if record.place in self.replay.steps:
            self.replay.steps[record.place].record = record
        return super().record(record, raised)


async def replay_program(
    core_services: Any, options: RunOptions, replay: Replay, program: Callable[[Any], Any], *, plainly: bool
) -> tuple[str | None, Any, Exception | None]:
    """Run the program; return its last checkpoint, what it returned, and what it raised."""
    result, error = None, None

    def make(*given: Any) -> ReplayCore:
        core = ReplayCore(*given)
        core.replay = replay
        return core

    terms = (core_services, options, DEFAULT_SECONDS, DEFAULT_SECONDS, None, make)
    try:
        if plainly:
            sync_run = await api.open_sync_run(*terms)
            core = sync_run._core
            with sync_run, current.enter_run(sync_run):
                result = program(sync_run)
        else:
            run = await api.open_run(*terms)
            core = run._core
            async with run:
                with current.enter_run(run):
                    result = program(run)
                    if inspect.isawaitable(result):
                        result = await result
    except (StoreError, LeaseLostError):
        raise
    except Exception as raised:
        error = raised
    return core.checkpoint_id, result, error


def describe_steps(codec: Codec, replay: Replay, error: Exception | None) -> tuple[ReplayedStep, ...]:
    """Return the steps, in the order in which they were called first."""
    return tuple(_describe_step(codec, place, step, error) for place, step in replay.steps.items())


def _describe_step(codec: Codec, place: str, step: _Step, error: Exception | None) -> ReplayedStep:
    record, was = step.record, step.was if step.was is not None and step.was.status in (OK, FAILED) else None
    if step.was_called:
        source: Any = "live"
    else:
        source = "recorded" if record is not None else "blocked"
    note = step.note
    if source == "blocked" and note is None and isinstance(error, HoldfastError):
        note = str(error)
    result, before = _value(codec, record), _value(codec, was)
    same: bool | None = None
    edits: tuple[Edit, ...] = ()
    if source == "live" and record is not None and was is not None:
        same = (record.status, record.payload) == (was.status, was.payload)
        if not same:
            edits = tuple(Differ(codec).edits(before, result, ("result",)))
    return ReplayedStep(
        name=step.name,
        kind=step.kind,
        place=place,
        source=source,
        failed=record is not None and record.status == FAILED,
        result=result,
        was=before,
        same=same,
        edits=edits,
        note=note,
    )


def _value(codec: Codec, record: JournalRecord | None) -> Any:
    """Return the result, or the exception: its class, its message, its arguments."""
    return codec.decode(record.payload) if record is not None and record.payload else None


def recorded_of(context: Any, owner: str) -> Mapping[str, JournalRecord]:
    """Return the records of a run, by their places."""
    if not isinstance(context, dict) or run_journal.KEY not in context:
        raise UsageError(
            f"{owner} was saved by no run: only what `client.run` or a `resumable` agent has recorded, or a LangGraph "
            "graph, can be replayed. `fork` continues from any checkpoint"
        )
    return {record.place: record for record in run_journal.from_context(context, owner)[1]}
