"""The state machine of one effect: from its ledger entry to a recorded result.

    entry in the ledger           action
    none, FAILED, COMPENSATED     RUN: commit the intent (STARTED), call, record DONE, FAILED or UNKNOWN
    DONE, in no checkpoint        ADOPT its result
    DONE, in a checkpoint         by `on_repeat`: REPLAY its result, RUN again, COMPENSATE, or BLOCK
    STARTED, UNKNOWN              RUN if idempotent; else PROBE, which makes it DONE or FAILED; else raise
    MODIFIED                      FOLLOW to the call that was approved instead
    COMPENSATING                  raise: whether it was undone is unknown

`model/effect.decide` is this table as code. There are two durable writes: the intent, whose commit compares the
ledger's row and the lease; and the result, in the commit of the checkpoint whose journal has it. A crash between
them leaves the entry as STARTED: its outcome is unknown until a probe, the effect's kind, or a person decides. No
timer does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from holdfast import telemetry
from holdfast.backends.port import RowWrite
from holdfast.errors import (
    EffectBlockedError,
    EffectNotDoneError,
    EffectUnknownError,
    HoldfastError,
    ProbeError,
    ResultNotKeptError,
    UnsupportedValueError,
    UsageError,
)
from holdfast.format.rows import ledger as entries
from holdfast.format.rows.ledger import LedgerEntry
from holdfast.format.state.run_journal import CARRIED_OUT, EFFECT, FAILED, OK, UNKEPT, JournalRecord
from holdfast.model import effect as effects
from holdfast.model import ids
from holdfast.model.effect import NOT_DONE, EffectAction, EffectKind, EffectState, OnRepeat
from holdfast.operations import lease as leasing
from holdfast.operations import ledger
from holdfast.runs import call_binding, call_sites, ledger_match, outcome, suspend
from holdfast.runs import probe as probes
from holdfast.runs.call_sites import EffectCall
from holdfast.runs.engine import RunEngine

if TYPE_CHECKING:
    from holdfast.runs.approval import ApprovedCall

MAX_DECISIONS = 50


async def effect(core: RunEngine, call: EffectCall, kind: type[EffectExecution] | None = None) -> Any:
    """Return the effect's recorded result, or carry it out, in another kind of execution if one is given."""
    digest = call.digest
    try:
        known = core.find_record(call)
        if known is not None and known.status == OK:
            core.index.note_path(f"{known.place}/")
            await core.save_unreturned(call.place, call.name)
            return core.ctx.codec.decode(known.payload, path="result")
        if known is not None:
            await _raise_recorded(core, call, known)
        with suspend.call(core):
            if not call.is_named:
                await _refuse_used_key(core, call)
            return await _execute(core, call, kind or EffectExecution)
    except BaseException:
        give_back(core, call, digest)
        raise


def give_back(core: RunEngine, call: EffectCall, *digests: bytes) -> None:
    """Return the place of a call that ended without a result: the next one is the same effect."""
    record = core.journal.get(call.place)
    is_done = record is not None and record.status in CARRIED_OUT
    if not is_done and not call_sites.has_key(call.place):  # an effect with a key is that one, whatever becomes of it
        core.index.forget_ordinal(call.place, call.tool, (call.digest, *digests))
    if record is None or is_done:  # else it failed: that is the result of the call
        core.sites.give_back(call.place)
    if record is None:
        for former in call.formers:
            core.sites.give_back(former.place)
    elif record.status == OK:
        core.index.unclaim(call.tool, call.place, record.about[0])
        core.sites.mark_interrupted(call.place)


async def _raise_recorded(core: RunEngine, call: EffectCall, known: JournalRecord) -> None:
    """Raise the failure that is recorded, or that the result could not be stored."""
    if known.status == FAILED:
        raises = (*call.raises, *call.not_done, EffectNotDoneError)
        raised = outcome.decode_error(core.ctx.codec, known.payload, call.place, raises)
        core.note_raised_again(raised, known)
        raise raised
    if known.status == UNKEPT and call.kind is not EffectKind.IDEMPOTENT:
        done = await ledger.find(core.ctx, known.about[0], core.tree)
        if done is not None and done.is_not_kept:
            raise make_not_kept_error(core, call, done)


async def _execute(core: RunEngine, call: EffectCall, kind: type[EffectExecution]) -> Any:
    id_, entry = await ledger_match.match_entry(core, call)
    in_flight = core.index.in_flight
    with core.lock:
        if id_ in in_flight:
            raise UsageError(f"effect {call.name!r:.60} is being carried out by this run already, under the same key")
        in_flight.add(id_)
    execution = kind(core, call, id_)
    backend = core.ctx.backend.capabilities.name
    try:
        with telemetry.record(telemetry.EFFECT, backend, **core.attributes()) as span:
            span.set(telemetry.STEP_NAME, call.name)
            span.set(telemetry.GEN_AI_OPERATION, telemetry.EXECUTE_TOOL)
            span.set(telemetry.TOOL, call.name)
            span.set(telemetry.EFFECT_KIND, str(call.kind))
            try:
                return await execution.execute(entry)
            except BaseException as error:
                execution.status = _STATUS.get(type(error), "failed")
                raise
            finally:
                span.set(telemetry.EFFECT_STATUS, execution.status)
                telemetry.count_effect(str(call.kind), execution.status)
    finally:
        with core.lock:
            in_flight.discard(execution.id)


_STATUS: dict[type[BaseException], str] = {EffectUnknownError: "unknown", EffectBlockedError: "blocked"}


async def _refuse_used_key(core: RunEngine, call: EffectCall) -> None:
    """Raise if the model's id of a call was used before, with other arguments."""
    other = core.index.other_under_key(call.name, call.place)
    record = core.journal.get(other) if other is not None else None
    if record is None:
        return
    entry = await ledger.find(core.ctx, record.about[0], core.tree)
    raise EffectBlockedError(
        f"effect {call.name!r:.60} was asked for with this key before, with other arguments, and was carried "
        f"out{f' ({ids.to_text(entry.id)})' if entry is not None else ''}. It is not carried out with these: give each "
        "call a key of its own",
        () if entry is None else (core.effect(entry),),
    )


class EffectExecution:
    """One effect that this line of execution has no record of, from its ledger entry to its end."""

    def __init__(self, core: RunEngine, call: EffectCall, id_: bytes) -> None:
        self.core = core
        self.ctx = core.ctx
        self.call = call
        self.id = id_
        self.started_us = core.ctx.now_us()
        self.status = "done"  # as telemetry has it
        self._requested = (call.digest, call.ordinal)  # an approval may change the call
        self._approval: ApprovedCall | None = None
        self._approval_rows: list[RowWrite] = []  # written with the intent: they use the approval up

    async def execute(self, entry: LedgerEntry | None) -> Any:
        """Decide by what the ledger has of it, and act, until a decision ends it."""
        call = self.call
        for _ in range(MAX_DECISIONS):
            if entry is not None and ledger_match.is_of_another(self.core, entry, call):
                entry = await self._match_again()
            if entry is not None and entry.state in (EffectState.STARTED, EffectState.COMPENSATING):
                await self._refuse_in_flight(entry)
            action = effects.decide(
                entry.state if entry else None,
                call.kind,
                recorded=entry is not None and entry.checkpoint is not None,
                kept=entry is None or not entry.is_not_kept,
                can_probe=call.probe is not None,
                on_repeat=call.on_repeat,
            )
            if action is EffectAction.RUN:
                started = await self._start(entry)
                if started is not None:
                    return await self._call(started)
                entry = await ledger.find(self.ctx, self.id, self.core.tree)
                continue
            assert entry is not None  # all other actions are about an entry
            match action:
                case EffectAction.REPLAY | EffectAction.ADOPT:
                    return await self._adopt(entry)
                case EffectAction.PROBE:
                    entry = await self._probe(entry)
                case EffectAction.FOLLOW:
                    entry = await self._follow(entry)
                case EffectAction.COMPENSATE:
                    entry = await self._compensate(entry)
                case EffectAction.BLOCK:
                    raise self._blocked_error(entry)
                case EffectAction.UNKNOWN:
                    raise self._unknown_error(entry)
                case EffectAction.NOT_KEPT:
                    raise make_not_kept_error(self.core, call, entry)
        raise EffectUnknownError(f"effect {call.name!r:.60} is being changed by too many at once: try again")

    async def _match_again(self) -> LedgerEntry | None:
        """Match the call to an entry once more: another writer was first, or the call has changed."""
        id_, entry = await ledger_match.match_entry(self.core, self.call)
        self._set_id(id_)
        return entry

    def _set_id(self, id_: bytes) -> None:
        with self.core.lock:
            self.core.index.in_flight.discard(self.id)
            self.core.index.in_flight.add(id_)
        self.id = id_

    # -- RUN: intent, call, result -----------------------------------------------------------------------------------

    async def _start(self, entry: LedgerEntry | None) -> LedgerEntry | None:
        """Commit the intent and return it; None if another writer was first, or the call has changed."""
        core, call = self.core, self.call
        duplicates = await ledger_match.possible_duplicates(core, call, entry)
        if duplicates and not call.approve:
            raise ledger_match.duplicate_error(core, call, duplicates)
        if await self._approve([duplicate.entry for duplicate in duplicates]):
            return None
        intent = await self._build_intent(entry)
        started = await ledger.put(self.ctx, core.lease, intent, entry, extra_rows=self._approval_rows)
        if started is None:
            self._approval, self._approval_rows = None, []
        else:
            core.index.note_entry(started)
        return started

    async def _call(self, started: LedgerEntry) -> Any:
        """Call the function, and record how that ended."""
        core, call = self.core, self.call
        try:
            kwargs = {**call.kwargs, **call_binding.make_key_argument(call.fn, started.provider_key)}
            with call_sites.CallFrame(core, f"{call.place}/"):
                result = await core.call(call.fn, call.args, kwargs)
        except Exception as error:
            await self._record_failure(started, error)
            raise
        except BaseException:
            self._note_in_doubt(started)
            raise
        try:
            payload, result = outcome.encode_result(self.ctx.codec, result, f"the result of effect {call.name!r:.60}")
        except UnsupportedValueError as error:
            raise await self._record_not_kept(started, error) from error
        now = self.ctx.now_us()
        done = started.change("done", now, core.lease.holder, state=EffectState.DONE, result=payload, error=None)
        await self._record(done, started, OK, payload, now)
        return result

    async def _build_intent(self, entry: LedgerEntry | None) -> LedgerEntry:
        core, call, codec = self.core, self.call, self.ctx.codec
        self.started_us = self.ctx.now_us()  # it may have waited for an approval, or for an undo, until now
        tip = await leasing.load_held_tip(self.ctx, core.lease)
        again = entry is not None and (
            entry.state is EffectState.COMPENSATED
            or (entry.state is EffectState.DONE and not self._is_result_retry(entry))
        )
        try:
            arguments = codec.encode(dict(call.arguments), "arguments")
        except UnsupportedValueError:
            arguments = codec.encode(dict(call.identified), "arguments")
        intent = LedgerEntry(
            id=self.id,
            tree=core.tree,
            tool=call.tool,
            kind=call.kind,
            state=EffectState.STARTED,
            identity=call.digest,
            loose=call.loose[0] if call.loose else b"",
            ordinal=call.ordinal,
            generation=(entry.generation if entry else 0) + again,
            attempts=(entry.attempts if entry else 0) + 1,
            session=core.options.session_id,
            agent=core.options.agent_id,
            token=core.lease.token,
            anchor=tip.head.checkpoint,
            checkpoint=None,
            arguments=arguments,
            identified=codec.encode(dict(call.identified), "arguments"),
            result=None,
            error=None,
            approval=self._approval.approval_id if self._approval else None,
            undoable=call.undo is not None,
            acknowledged=False,
            target=None,
            place=call.place if call.is_named else None,
            sequence=tip.head.sequence,
            declared=call.is_declared,
            function=call.function,
            history=entry.history if entry else (),
        )
        return intent.change("started", self.started_us, core.lease.holder, "once more" if again else None)

    def _is_result_retry(self, entry: LedgerEntry) -> bool:
        """Return whether an idempotent effect is repeated, with the same key, for an unstored result."""
        return (
            entry.is_not_kept and self.call.kind is EffectKind.IDEMPOTENT and self.call.on_repeat is not OnRepeat.AGAIN
        )

    async def _record_not_kept(self, started: LedgerEntry, error: UnsupportedValueError) -> ResultNotKeptError:
        """Record that the effect was carried out, though its result can't be stored."""
        core, now = self.core, self.ctx.now_us()
        message = self.ctx.codec.redact_text(f"{entries.NOT_KEPT}: {error}", "exception")
        done = started.change(
            "done", now, core.lease.holder, message, state=EffectState.DONE, result=None, error=message
        )
        await self._record(done, started, UNKEPT, b"", now)
        return make_not_kept_error(core, self.call, done)

    async def _record(self, entry: LedgerEntry, following: LedgerEntry, status: str, payload: bytes, now: int) -> None:
        """Write journal and ledger by one commit."""
        core, call = self.core, self.call
        record = JournalRecord(
            call.place, EFFECT, status, payload, entry.attempts, self.started_us, now, self._effect_fields()
        )
        core.finish(entry, following)
        await core.save(call.name, core.record(record))

    def _effect_fields(self) -> list[Any]:
        """Return the identity of the effect and, if an approval changed it, the requested one."""
        call = self.call
        own = (call.digest, call.ordinal)
        return [self.id, call.tool, *own, *(self._requested if self._requested != own else ())]

    async def _record_failure(self, started: LedgerEntry, error: Exception) -> None:
        """Record an exception. Most say nothing about whether the effect was carried out."""
        core, call, now = self.core, self.call, self.ctx.now_us()
        message = self.ctx.codec.redact_text(f"{outcome.error_name(error)}: {error}", "exception")[:1000]
        is_certain = isinstance(error, (EffectNotDoneError, *call.not_done))
        state = EffectState.FAILED if is_certain else EffectState.UNKNOWN
        failed = started.change(state.value, now, core.lease.holder, message, state=state, error=message)
        if not is_certain and call.kind is not EffectKind.IDEMPOTENT:
            put = await ledger.put(self.ctx, core.lease, failed, started)
            self._note_in_doubt(put or started)
            return
        payload = outcome.encode_error(self.ctx.codec, error)
        record = JournalRecord(
            call.place, EFFECT, FAILED, payload, failed.attempts, self.started_us, now, self._effect_fields()
        )
        core.finish(failed, started)
        await core.save(call.name, core.record(record, error))

    def _note_in_doubt(self, entry: LedgerEntry) -> None:
        """Make the entry a possible duplicate of later calls."""
        if self.core.index.foreign is not None:
            self.core.index.foreign[self.id] = entry

    # -- what is known already ---------------------------------------------------------------------------------------

    async def _adopt(self, entry: LedgerEntry) -> Any:
        """Record the known result in this line of execution, and return it."""
        core, now = self.core, self.ctx.now_us()
        self.status = "replayed"
        assert entry.result is not None
        if entry.checkpoint is None:
            taken = entry.change("taken up", now, core.lease.holder)
            await self._record(taken, entry, OK, entry.result, now)
        else:
            call, about = self.call, self._effect_fields()
            record = JournalRecord(call.place, EFFECT, OK, entry.result, entry.attempts, self.started_us, now, about)
            await core.save(self.call.name, core.record(record))
        return self.ctx.codec.decode(entry.result, path="result")

    async def _probe(self, entry: LedgerEntry) -> LedgerEntry | None:
        """Call the probe. If it raises, or returns anything else, the outcome stays unknown."""
        core, call = self.core, self.call
        assert call.probe is not None
        args, given = self._arguments_of(entry)
        kwargs = {**given, **call_binding.make_key_argument(call.probe, entry.provider_key)}
        try:
            found = await core.call(call.probe, args, kwargs)
        except Exception as error:
            raise self._unknown_error(entry, f"and its probe failed: {error!r:.200}") from error
        now = self.ctx.now_us()
        if not probes.is_answer(found):
            unknown = self._unknown_error(entry, f"and {probes.describe_other_answer(found)}")
            raise ProbeError(str(unknown), unknown.effect)
        if found is NOT_DONE:
            answered = entry.change("probe: not done", now, core.lease.holder, state=EffectState.FAILED)
        else:
            payload, message = None, None
            try:
                subject = f"what the probe of {call.name!r:.60} found"
                payload, _ = outcome.encode_result(self.ctx.codec, found.result, subject)
            except UnsupportedValueError as error:  # it was done all the same
                message = self.ctx.codec.redact_text(f"{entries.NOT_KEPT}: {error}", "exception")
            answered = entry.change(
                "probe: done", now, core.lease.holder, message, state=EffectState.DONE, result=payload, error=message
            )
        put = await ledger.put(self.ctx, core.lease, answered, entry)
        return put if put is not None else await ledger.find(self.ctx, self.id, core.tree)

    def _arguments_of(self, entry: LedgerEntry) -> tuple[Sequence[Any], dict[str, Any]]:
        """Return the arguments of the recorded call, for the probe: this call may have others."""
        call = self.call
        try:
            if entry.arguments != self.ctx.codec.encode(dict(call.arguments), "arguments"):
                recorded = self.ctx.codec.decode(entry.arguments)
                if recorded.keys() == call.arguments.keys():  # else not all were kept, or the function takes others now
                    return call_binding.spread(call.fn, call_binding.without_defaults(call.fn, recorded))
        except HoldfastError:  # a value that can't be encoded, or of a class that is not registered here
            pass
        return call.args, call.kwargs

    async def _compensate(self, entry: LedgerEntry) -> LedgerEntry | None:
        if self.call.undo is None:
            raise UsageError(f"effect {self.call.name!r:.60}: on_repeat='compensate' needs undo=...")
        return await compensate(self.core, entry, self.call.undo)

    # -- approval ----------------------------------------------------------------------------------------------------

    async def _approve(self, duplicates: Sequence[LedgerEntry]) -> bool:
        """Get an approval if one is required; return whether it has changed the call.

        A changed call is another effect: the entry of that one decides.
        """
        core, call = self.core, self.call
        if self._approval is not None or (call.approve is None and core.options.policy is None):
            return False
        from holdfast.runs import approval

        approved = await approval.get_approval(core, call, self.id, duplicates)
        if approved is None:
            return False
        self._approval, self._approval_rows = approved, list(approved.rows)
        if approved.arguments is None:
            return False
        before = await ledger.find(self.ctx, self.id, core.tree)
        requested = await self._build_intent(before)
        self._change_arguments(dict(approved.arguments))
        await self._match_again()
        if self.id == requested.id:
            return False
        # A call for the original, after a crash or a rollback, follows to the one that was made
        # instead.
        modified = requested.change("modified", self.ctx.now_us(), approved.approval_id,
                                 state=EffectState.MODIFIED, target=self.id)  # fmt: skip
        self._approval_rows.append(modified.write(before))
        return True

    def _change_arguments(self, arguments: dict[str, Any]) -> None:
        """Give the call other arguments, and the identity that follows from them."""
        call = self.call
        call.args, call.kwargs = call_binding.spread(call.fn, arguments)
        call.arguments = arguments
        if call.key is None:  # else that is the identity, whatever the arguments are
            codec, before = self.ctx.codec, call.identified
            call.chosen = {name: arguments.get(name, value) for name, value in call.chosen.items()}
            call.identified = call_binding.without_defaults(call.fn, call.chosen)
            digest = entries.digest(codec, call.identified)
            if digest != entries.digest(codec, before):
                call.digest, call.tool, call.formers = digest, call.name, ()

    async def _follow(self, entry: LedgerEntry) -> LedgerEntry | None:
        """Become the call that was approved instead of this one."""
        assert entry.target is not None
        target = await ledger.find(self.ctx, entry.target, self.core.tree)
        assert target is not None  # both were written by one commit
        self._change_arguments(self.ctx.codec.decode(target.arguments))
        self.call.ordinal, self.call.tool, self.call.digest = target.ordinal, target.tool, target.identity
        self.core.index.take_entry(target, self.call.place)
        self._set_id(target.id)
        return target

    # -- words -------------------------------------------------------------------------------------------------------

    async def _refuse_in_flight(self, entry: LedgerEntry) -> None:
        if (entry.session, entry.token) == (self.core.options.session_id, self.core.lease.token):
            return  # of this run, and not at work any more: interrupted
        if await ledger.is_in_flight(self.ctx, entry):
            raise EffectUnknownError(
                f"effect {self.call.name!r:.60} ({ids.to_text(entry.id)}) is being carried out right now, by the run "
                f"of session {entry.session!r:.60}: wait until that has ended",
                self.core.effect(entry),
            )

    def _unknown_error(self, entry: LedgerEntry, more: str = "") -> EffectUnknownError:
        action = "undone" if entry.state is EffectState.COMPENSATING else "carried out"
        return EffectUnknownError(
            f"it is unknown whether effect {self.call.name!r:.60} ({ids.to_text(entry.id)}) was {action}: it was "
            f"started by {entry.session!r:.60}, and how it ended was never recorded{', ' + more if more else ''}. It "
            f"is not repeated. Find out, then say so: holdfast resolve {ids.short(ids.to_text(entry.id))} --done or "
            "--not-done (client.resolve_effect); with probe=... holdfast asks by itself",
            self.core.effect(entry),
        )

    def _blocked_error(self, entry: LedgerEntry) -> EffectBlockedError:
        return EffectBlockedError(
            f"effect {self.call.name!r:.60} ({ids.to_text(entry.id)}) was carried out already, in session "
            f"{entry.session!r:.60}, on another branch or before a rollback, and can't be taken back. It is not "
            "repeated. on_repeat='replay' gives its recorded result, 'again' carries it out once more, 'compensate' "
            "undoes it first",
            (self.core.effect(entry),),
        )


def make_not_kept_error(core: RunEngine, call: EffectCall, entry: LedgerEntry) -> ResultNotKeptError:
    id_ = ids.to_text(entry.id)
    again = (
        "It is idempotent: the next start calls it again"
        if call.kind is EffectKind.IDEMPOTENT
        else "It is not repeated"
    )
    return ResultNotKeptError(
        f"effect {call.name!r:.60} ({id_}) was carried out, but {entry.error or entries.NOT_KEPT}. {again}. "
        f"Give it a result: holdfast resolve {ids.short(id_)} --done --result JSON (client.resolve_effect); and let "
        "the function return something that can be kept",
        core.effect(entry),
    )


async def compensate(core: RunEngine, entry: LedgerEntry, undo: Callable[..., Any]) -> LedgerEntry:
    """Undo an effect that is done, and record that before and after."""
    ctx = core.ctx
    undoing = entry.change("compensating", ctx.now_us(), core.lease.holder, state=EffectState.COMPENSATING,
                        token=core.lease.token, session=core.options.session_id)  # fmt: skip
    started = await ledger.put(ctx, core.lease, undoing, entry)
    if started is None:
        raise EffectUnknownError(f"effect {ids.to_text(entry.id)} was changed by another process: look again")
    result = ctx.codec.decode(entry.result) if entry.result is not None else None
    await core.call(undo, (result,), call_binding.make_key_argument(undo, f"{entry.provider_key}_undo"))
    undone = started.change("compensated", ctx.now_us(), core.lease.holder, state=EffectState.COMPENSATED)
    put = await ledger.put(ctx, core.lease, undone, started)
    if put is None:
        raise EffectUnknownError(
            f"effect {ids.to_text(entry.id)} was undone, and changed by another process: look again"
        )
    return put
