"""replay: a program of `client.run` once more, from a checkpoint of an earlier run, in a session of its own.

What the earlier run recorded is at hand, and the mode says when it is served: `recorded`, always, and what was not recorded is
not called either; `live`, never; `mixed`, as long as steps are asked what they were asked then. The first one that is asked
something else is called, and so is everything after it: its answer may be another. Effects that are not served go by
the ledger, as in any fork.
"""

from __future__ import annotations

import contextvars
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.codec.codec import Codec
from holdfast.errors import HoldfastError, LeaseLostError, NotRecordedError, StoreError, UsageError
from holdfast.model.diff import Edit
from holdfast.model.effects import OnRepeat
from holdfast.model.lease import DEFAULT_SECONDS
from holdfast.model.replay import ReplayedStep
from holdfast.objects import journal
from holdfast.objects.differ import Differ
from holdfast.objects.journal import EFFECT, FAILED, OK, STEP, Journal, Record
from holdfast.runs import faces, stepping
from holdfast.runs.core import Core, Options
from holdfast.runs.effecting import EffectCall
from holdfast.runs.places import Places
from holdfast.runs.stepping import StepCall

_asked: contextvars.ContextVar[str | None] = contextvars.ContextVar("holdfast_replay", default=None)


@dataclass(slots=True)
class _Step:
    """A step that was asked for, and what is known of it so far."""

    name: str
    kind: str
    was: Record | None
    was_called: bool = False
    record: Record | None = None
    note: str | None = None


@dataclass(slots=True, kw_only=True)
class Replay:
    """What a replay was told, and what came of it. `from_start` says that the checkpoint's own journal is none of its past:
    every step is replayed."""

    mode: str
    original: Mapping[str, Record]
    choices: Mapping[str, str] = field(default_factory=dict)  # by name of step: "recorded" or "live"
    on_repeat: OnRepeat | None = None
    from_start: bool = False
    has_parted: bool = False
    steps: dict[str, _Step] = field(default_factory=dict)

    def is_served(self, codec: Codec, call: StepCall | EffectCall, was: Record | None) -> bool:
        """Whether the recorded answer is given. Raises if there is none, and nothing else may be."""
        mode = self.choices.get(call.name, self.mode)
        is_there = was is not None and was.status in (OK, FAILED)
        if mode == "recorded" and not is_there:
            raise NotRecordedError(
                f"nothing was recorded of {call.name!r:.60} ({call.place!r:.80}), and this replay calls nothing that was not: "
                f"replay with mode='mixed' or 'live', or with steps={{{call.name!r:.60}: 'live'}}"
            )
        if mode == "mixed":
            if not is_there or self.has_parted or (was is not None and not _is_asked_the_same(codec, call, was)):
                self.has_parted = True
            return not self.has_parted
        return mode == "recorded"


def _is_asked_the_same(codec: Codec, call: StepCall | EffectCall, was: Record) -> bool:
    """An effect's place has its identity in it. What was not written down is not known to be the same."""
    if isinstance(call, EffectCall):
        return True
    now = stepping.inputs(codec, call)
    return bool(now) and now == [bytes(one) for one in was.about]


class ReplayCore(Core):
    """A run that is given what an earlier one recorded."""

    replay: Replay

    async def open(self) -> None:
        await super().open()
        if self.replay.from_start:
            self.journal = Journal(version=self.journal.version)
            self.places = Places()
            self.on_path.clear()
            self.task_lists = {}
        ask = self.call

        async def call(fn: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
            place = _asked.get()
            if place in self.replay.steps:
                self.replay.steps[place].was_called = True
            return await ask(fn, args, kwargs)

        self.call = call

    def known(self, call: StepCall | EffectCall) -> Record | None:
        replay = self.replay
        own, was = super().known(call), replay.original.get(call.place)
        kind = EFFECT if isinstance(call, EffectCall) else STEP
        asked = replay.steps[call.place] = _Step(call.name, kind, was)
        _asked.set(call.place)
        if own is not None and replay.choices.get(call.name) != "live":
            asked.record = own
            return own
        if isinstance(call, EffectCall) and call.on_repeat is None:
            call.on_repeat = replay.on_repeat
        try:
            is_served = replay.is_served(self.services.codec, call, was)
        except NotRecordedError:
            asked.note = "nothing was recorded"
            raise
        if not is_served:
            return None
        assert was is not None
        self.record(was)  # part of this line now: whoever goes on from here finds it
        return was

    def record(self, record: Record, raised: BaseException | None = None) -> int:
        if record.place in self.replay.steps:
            self.replay.steps[record.place].record = record
        return super().record(record, raised)


async def replayed(
    core_services: Any, options: Options, replay: Replay, program: Callable[[Any], Any], *, plainly: bool
) -> tuple[str | None, Any, Exception | None]:
    """Runs the program. The checkpoint that its session stands at then, what it returned, and what it raised."""
    result, error = None, None

    def make(*given: Any) -> ReplayCore:
        core = ReplayCore(*given)
        core.replay = replay
        return core

    terms = (core_services, options, DEFAULT_SECONDS, DEFAULT_SECONDS, None, make)
    try:
        if plainly:
            sync_run = await faces.sync_opened(*terms)
            core = sync_run._core
            with sync_run:
                result = program(sync_run)
        else:
            run = await faces.opened(*terms)
            core = run._core
            async with run:
                result = program(run)
                if inspect.isawaitable(result):
                    result = await result
    except (StoreError, LeaseLostError):
        raise
    except Exception as raised:
        error = raised
    return core.checkpoint_id, result, error


def told(codec: Codec, replay: Replay, error: Exception | None) -> tuple[ReplayedStep, ...]:
    """The steps, in the order in which they were asked for first."""
    return tuple(_told(codec, place, step, error) for place, step in replay.steps.items())


def _told(codec: Codec, place: str, step: _Step, error: Exception | None) -> ReplayedStep:
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


def _value(codec: Codec, record: Record | None) -> Any:
    """The result, or what was raised: its class, its message, its arguments."""
    return codec.decode(record.payload) if record is not None and record.payload else None


def recorded_of(context: Any, what: str) -> Mapping[str, Record]:
    """What a run has recorded, by its places."""
    if not isinstance(context, dict) or journal.KEY not in context:
        raise UsageError(
            f"{what} was saved by no run: only what `client.run` has recorded, or a LangGraph graph, can be replayed. `fork` goes "
            "on from any checkpoint"
        )
    return {record.place: record for record in journal.from_context(context, what)[1]}
