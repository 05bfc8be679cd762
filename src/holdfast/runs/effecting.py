"""effect: written down as started before it is carried out, and never carried out twice unless somebody decided so.

Two durable writes: the intent, whose commit compares the ledger's row and the lease; and the result, in the same commit as
the checkpoint whose journal has it. Between them a crash leaves the entry as *started*. Whoever meets it then knows that
nobody knows: a probe, the effect's own nature, or a person has to say what happened. No timer does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.backends.port import RowWrite
from holdfast.errors import (
    EffectBlockedError,
    EffectNotDoneError,
    EffectUnknownError,
    UnsupportedValueError,
    UsageError,
)
from holdfast.model import effects, ids
from holdfast.model.effects import Action, EffectKind, EffectState, OnRepeat
from holdfast.objects import ledger as entries
from holdfast.objects.journal import EFFECT, FAILED, OK, Record
from holdfast.objects.ledger import Entry
from holdfast.operations import ledger
from holdfast.runs import calling, failures, frames, meeting, suspecting
from holdfast.runs.core import Core

if TYPE_CHECKING:
    from holdfast.runs.approving import Admission

MAX_DECISIONS = 50


@dataclass(slots=True, kw_only=True)
class EffectCall:
    """An effect that is asked for. `ordinal` tells calls of the same tool and identity apart; it is known when the ledger was
    looked at."""

    place: str
    name: str
    fn: Callable[..., Any]
    args: Sequence[Any] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    kind: EffectKind
    arguments: dict[str, Any]
    identified: dict[str, Any]
    digest: bytes
    ordinal: int = 0
    is_named: bool = True  # by its place; False: whoever asks for an equal one means this one
    probe: Callable[..., Any] | None = None
    undo: Callable[..., Any] | None = None
    approve: Any = None
    on_repeat: OnRepeat | None = None
    on_suspect: str = "block"
    not_done: tuple[type[Exception], ...] = ()
    raises: tuple[type[Exception], ...] = ()


def asked(
    core: Core,
    path: str,
    name: str,
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    *,
    kind: str,
    key: str | None,
    identity: Sequence[str] | str | None,
    volatile: Sequence[str] | str,
    on_repeat: str | None,
    on_suspect: str,
    **others: Any,
) -> EffectCall:
    """The call, checked and with its identity. Made when `effect` is called, so that parallel calls are told apart by the
    order in which they were made."""
    of_kind = _one_of("kind", kind, EffectKind)
    wanted = None if on_repeat is None else _one_of("on_repeat", on_repeat, OnRepeat)
    _one_of("on_suspect", on_suspect, ("block", "go"))
    for what in ("probe", "undo"):
        if (given := others.get(what)) is not None and not callable(given):
            raise UsageError(f"effect {name!r:.60}: {what} is {given!r:.60}, which can't be called. Give a function")
    named = calling.bound(fn, args, kwargs)
    if (probe := others.get("probe")) is not None:
        try:
            calling.bound(probe, args, kwargs)  # now: it will be asked when something has gone wrong
        except UsageError as error:
            raise UsageError(
                f"effect {name!r:.60}: its probe is asked with the effect's arguments, and {error}"
            ) from None
    identity = (identity,) if isinstance(identity, str) else identity
    volatile = (volatile,) if isinstance(volatile, str) else volatile
    identified = calling.chosen(named, identity, volatile, f"effect {name!r:.60}")
    codec = core.services.codec
    try:
        digest = entries.digest(codec, identified)
    except UnsupportedValueError as error:
        raise UsageError(
            f"effect {name!r:.60}: what makes out its identity can't be written down: {error}. Name the arguments that can, "
            "by identity=(...), or those that can't, by volatile=(...)"
        ) from None
    place = core.places.place(path, f"{name}!{digest[:16].hex()}", key)
    core.places.claim(name, place)
    return EffectCall(
        place=place, name=name, fn=fn, args=args, kwargs=kwargs, kind=of_kind, arguments=named, identified=identified,
        digest=digest, on_repeat=wanted, on_suspect=on_suspect, **others,
    )  # fmt: skip


async def effect(core: Core, call: EffectCall) -> Any:
    digest = call.digest
    try:
        return await _known_or_carried_out(core, call)
    except BaseException:
        give_back(core, call, digest)
        raise


def give_back(core: Core, call: EffectCall, *digests: bytes) -> None:
    """The call has ended without a result: who makes it again asks for the same effect."""
    core.places.give_back_effect(call.place, call.name, (call.digest, *digests), core.journal.get(call.place))


async def _known_or_carried_out(core: Core, call: EffectCall) -> Any:
    codec = core.services.codec
    known = core.known(call)
    if known is not None and known.status == OK:
        await core.save_if_interrupted(call.place, call.name)
        return codec.decode(known.payload)
    if known is not None and known.status == FAILED:
        raised = failures.rebuilt(codec, known.payload, call.place, call.raises)
        core.raised_again(raised, known)
        raise raised
    await _refuse_used_key(core, call)
    id_, entry = await meeting.met(core, call)
    with core.lock:
        if id_ in core.in_flight:
            raise UsageError(f"effect {call.name!r:.60} is being carried out by this run already, under the same key")
        core.in_flight.add(id_)
    carried_out = _Effect(core, call, id_)
    try:
        return await carried_out.carry_out(entry)
    finally:
        with core.lock:
            core.in_flight.discard(carried_out.id)


async def _refuse_used_key(core: Core, call: EffectCall) -> None:
    """A key says which call it is: with other arguments it is that call all the same, made up anew."""
    other = core.places.other_under_key(call.place)
    record = core.journal.get(other) if other is not None else None
    if record is None:
        return
    entry = await ledger.find(core.services, record.about[0], core.tree)
    raise EffectBlockedError(
        f"effect {call.name!r:.60} was asked for with this key before, with other arguments, and was carried out"
        f"{f' ({ids.to_text(entry.id)})' if entry is not None else ''}. It is not carried out with these. Give a call of its own a "
        "key of its own; identity=(...) says which arguments make out the effect",
        () if entry is None else (core.effect(entry),),
    )


class _Effect:
    """One effect that has no record on this line of execution, from looking at the ledger to its end."""

    def __init__(self, core: Core, call: EffectCall, id_: bytes) -> None:
        self.core = core
        self.services = core.services
        self.call = call
        self.id = id_
        self.started_us = core.services.now_us()
        self._result: Any = None
        self._asked_for = (call.digest, call.ordinal)  # an approval may make another one of it
        self._admission: Admission | None = None
        self._also: list[RowWrite] = []  # what the approval uses up

    async def carry_out(self, entry: Entry | None) -> Any:
        """`entry` is what the ledger has of it."""
        for _ in range(MAX_DECISIONS):
            if entry is not None and meeting.is_of_another(entry, self.call):
                entry = await self._meet_anew()
            if entry is not None and entry.state in (EffectState.STARTED, EffectState.COMPENSATING):
                await self._refuse_in_flight(entry)
            match effects.decide(
                entry.state if entry else None,
                self.call.kind,
                recorded=entry is not None and entry.checkpoint is not None,
                can_probe=self.call.probe is not None,
                on_repeat=self.call.on_repeat,
            ):
                case Action.RUN:
                    done, entry = await self._run(entry)
                    if done:
                        return self._result
                    continue  # somebody else was first: look again
                case Action.REPLAY | Action.ADOPT:
                    assert entry is not None
                    return await self._adopt(entry)
                case Action.PROBE:
                    assert entry is not None
                    entry = await self._probe(entry)
                case Action.FOLLOW:
                    assert entry is not None
                    entry = await self._follow(entry)
                case Action.COMPENSATE:
                    assert entry is not None
                    entry = await self._compensate(entry)
                case Action.BLOCK:
                    assert entry is not None
                    raise self._blocked(entry)
                case Action.UNKNOWN:
                    assert entry is not None
                    raise self._unknown(entry)
        raise EffectUnknownError(f"effect {self.call.name!r:.60} is being changed by too many at once: try again")

    async def _meet_anew(self) -> Entry | None:
        """After somebody else was first, or the call has become another one."""
        id_, entry = await meeting.met(self.core, self.call)
        self._is_now(id_)
        return entry

    def _is_now(self, id_: bytes) -> None:
        with self.core.lock:
            self.core.in_flight.discard(self.id)
            self.core.in_flight.add(id_)
        self.id = id_

    # -- carrying it out ---------------------------------------------------------------------------------------------

    async def _run(self, entry: Entry | None) -> tuple[bool, Entry | None]:
        """Intent, call, result. False, and what the ledger says now, if another was first."""
        core, call = self.core, self.call
        suspected = await suspecting.suspects(core, call, entry)
        if suspected and call.on_suspect == "block" and not call.approve:
            raise suspecting.blocked(core, call, suspected)
        if await self._admit(suspected):
            return False, await ledger.find(self.services, self.id, core.tree)  # another call now
        intent = await self._intent(entry)
        started = await ledger.put(self.services, core.lease, intent, entry, also=self._also)
        if started is None:
            self._admission, self._also = None, []
            return False, await ledger.find(self.services, self.id, core.tree)
        core.places.heed(started)
        try:
            kwargs = {**call.kwargs, **calling.keyed(call.fn, started.provider_key)}
            with frames.Call(core, f"{call.place}/"):
                result = await core.call(call.fn, call.args, kwargs)
        except Exception as error:
            await self._raised(started, error)
            raise
        except BaseException:
            self._note_in_doubt(started)
            raise
        try:
            payload = self.services.codec.encode(result, f"the result of effect {call.name!r:.60}")
        except UnsupportedValueError as error:
            # It was done: that is what counts. Who needs the result has to make it something that can be kept.
            await self._done(started, self.services.codec.encode(None), error=f"its result could not be kept: {error}")
            raise
        await self._done(started, payload)
        self._result = result
        return True, None

    async def _intent(self, entry: Entry | None) -> Entry:
        core, call, codec = self.core, self.call, self.services.codec
        self.started_us = self.services.now_us()  # it may have waited for an approval, or for an undo, until now
        line = await ledger.line_under(self.services, core.lease)
        again = entry is not None and entry.state in (EffectState.DONE, EffectState.COMPENSATED)
        try:
            arguments = codec.encode(dict(call.arguments), "arguments")
        except UnsupportedValueError:
            arguments = codec.encode(dict(call.identified), "arguments")
        intent = Entry(
            id=self.id,
            tree=core.tree,
            tool=call.name,
            kind=call.kind,
            state=EffectState.STARTED,
            identity=call.digest,
            loose=entries.loose_digest(codec, call.identified),
            ordinal=call.ordinal,
            generation=(entry.generation if entry else 0) + again,
            attempts=(entry.attempts if entry else 0) + 1,
            session=core.options.session_id,
            agent=core.options.agent_id,
            token=core.lease.token,
            anchor=line.head.checkpoint,
            checkpoint=None,
            arguments=arguments,
            identified=codec.encode(dict(call.identified), "arguments"),
            result=None,
            error=None,
            approval=self._admission.approval_id if self._admission else None,
            undoable=call.undo is not None,
            acknowledged=False,
            target=None,
            place=call.place if call.is_named else None,
            history=entry.history if entry else (),
        )
        return intent.now("started", self.started_us, core.lease.holder, "once more" if again else None)

    async def _done(self, started: Entry, payload: bytes, error: str | None = None) -> None:
        core, now = self.core, self.services.now_us()
        done = started.now("done", now, core.lease.holder, error, state=EffectState.DONE, result=payload, error=error)
        await self._recorded(done, started, OK, payload, now)

    async def _recorded(self, entry: Entry, following: Entry, status: str, payload: bytes, now: int) -> None:
        """Into the journal and the ledger, by one commit."""
        core, call = self.core, self.call
        record = Record(call.place, EFFECT, status, payload, entry.attempts, self.started_us, now, self._about())
        core.finish(entry, following)
        await core.save(call.name, core.record(record))

    def _about(self) -> list[Any]:
        """Which effect it is and, if that is another one, which was asked for."""
        call = self.call
        own = (call.digest, call.ordinal)
        return [self.id, call.name, *own, *(self._asked_for if self._asked_for != own else ())]

    async def _raised(self, started: Entry, error: Exception) -> None:
        """What an exception says: mostly nothing about whether the effect was carried out."""
        core, call, now = self.core, self.call, self.services.now_us()
        told = f"{failures.name_of(error)}: {error}"[:1000]
        is_certain = isinstance(error, (EffectNotDoneError, *call.not_done))
        state = EffectState.FAILED if is_certain else EffectState.UNKNOWN
        failed = started.now(state.value, now, core.lease.holder, told, state=state, error=told)
        if not is_certain and call.kind is not EffectKind.IDEMPOTENT:
            put = await ledger.put(self.services, core.lease, failed, started)
            self._note_in_doubt(put or started)
            return
        payload = failures.packed(self.services.codec, error)
        record = Record(call.place, EFFECT, FAILED, payload, failed.attempts, self.started_us, now, self._about())
        core.finish(failed, started)
        await core.save(call.name, core.record(record, error))

    def _note_in_doubt(self, entry: Entry) -> None:
        """A call for something else may be made in its place."""
        if self.core.foreign is not None:
            self.core.foreign[self.id] = entry

    # -- what is known already ---------------------------------------------------------------------------------------

    async def _adopt(self, entry: Entry) -> Any:
        """The recorded result becomes part of this line of execution."""
        core, now = self.core, self.services.now_us()
        assert entry.result is not None
        if entry.checkpoint is None:
            taken = entry.now("taken up", now, core.lease.holder)
            await self._recorded(taken, entry, OK, entry.result, now)
        else:
            call, about = self.call, self._about()
            record = Record(call.place, EFFECT, OK, entry.result, entry.attempts, self.started_us, now, about)
            await core.save(self.call.name, core.record(record))
        return self.services.codec.decode(entry.result)

    async def _probe(self, entry: Entry) -> Entry | None:
        """Asks the other side what became of it. None of its answers is made up: if it raises, nothing is known."""
        core, call = self.core, self.call
        assert call.probe is not None
        kwargs = {**call.kwargs, **calling.keyed(call.probe, entry.provider_key)}
        try:
            found = await core.call(call.probe, call.args, kwargs)
        except Exception as error:
            raise self._unknown(entry, f"and its probe failed: {error!r:.200}") from error
        now = self.services.now_us()
        if found is None:
            answered = entry.now("probe: not done", now, core.lease.holder, state=EffectState.FAILED)
        else:
            payload = self.services.codec.encode(found, f"what the probe of {call.name!r:.60} found")
            answered = entry.now(
                "probe: done", now, core.lease.holder, state=EffectState.DONE, result=payload, error=None
            )
        put = await ledger.put(self.services, core.lease, answered, entry)
        return put if put is not None else await ledger.find(self.services, self.id, core.tree)

    async def _compensate(self, entry: Entry) -> Entry | None:
        if self.call.undo is None:
            raise UsageError(f"effect {self.call.name!r:.60}: on_repeat='compensate' needs undo=...")
        return await compensate(self.core, entry, self.call.undo)

    # -- approval ----------------------------------------------------------------------------------------------------

    async def _admit(self, suspects: Sequence[Entry]) -> bool:
        """Waits for nobody unless `approve` or the run's policy says so. True if the call was changed by who approved it:
        then it is another effect, and what the ledger says of that one counts."""
        core, call = self.core, self.call
        if self._admission is not None or (call.approve is None and core.options.policy is None):
            return False
        from holdfast.runs import approving

        admitted = await approving.admitted(core, call, self.id, suspects)
        if admitted is None:
            return False
        self._admission, self._also = admitted, list(admitted.rows)
        if admitted.arguments is None:
            return False
        before = await ledger.find(self.services, self.id, core.tree)
        asked_for = await self._intent(before)
        self._become(dict(admitted.arguments))
        await self._meet_anew()
        if self.id == asked_for.id:
            return False
        # Who asks for the original call again, after a crash or a rollback, is led to the one that was made instead.
        modified = asked_for.now("modified", self.services.now_us(), admitted.approval_id,
                                 state=EffectState.MODIFIED, target=self.id)  # fmt: skip
        self._also.append(modified.write(before))
        return True

    def _become(self, arguments: dict[str, Any]) -> None:
        """The call is made with other arguments: those are its identity, too."""
        call = self.call
        call.args, call.kwargs = calling.spread(call.fn, arguments)
        call.arguments = arguments
        call.identified = {name: arguments.get(name, value) for name, value in call.identified.items()}
        call.digest = entries.digest(self.services.codec, call.identified)

    async def _follow(self, entry: Entry) -> Entry | None:
        """To the call that was approved in the place of this one."""
        assert entry.target is not None
        target = await ledger.find(self.services, entry.target, self.core.tree)
        assert target is not None  # both were written by one commit
        self._become(self.services.codec.decode(target.arguments))
        self.call.ordinal = target.ordinal
        self.core.places.take(target, self.call.place)
        self._is_now(target.id)
        return target

    # -- words -------------------------------------------------------------------------------------------------------

    async def _refuse_in_flight(self, entry: Entry) -> None:
        if (entry.session, entry.token) == (self.core.options.session_id, self.core.lease.token):
            return  # of this run, and not at work any more: interrupted
        if await ledger.is_in_flight(self.services, entry):
            raise EffectUnknownError(
                f"effect {self.call.name!r:.60} ({ids.to_text(entry.id)}) is being carried out right now, by the run of "
                f"session {entry.session!r:.60}: wait until that has ended",
                self.core.effect(entry),
            )

    def _unknown(self, entry: Entry, more: str = "") -> EffectUnknownError:
        what = "undone" if entry.state is EffectState.COMPENSATING else "carried out"
        return EffectUnknownError(
            f"nobody knows whether effect {self.call.name!r:.60} ({ids.to_text(entry.id)}) was {what}: it was started by "
            f"{entry.session!r:.60}, and how it ended was never recorded{', ' + more if more else ''}. It is not repeated. "
            f"Find out, then say so: holdfast resolve {ids.short(ids.to_text(entry.id))} --done or --not-done "
            "(client.resolve_effect); with probe=... holdfast asks by itself",
            self.core.effect(entry),
        )

    def _blocked(self, entry: Entry) -> EffectBlockedError:
        return EffectBlockedError(
            f"effect {self.call.name!r:.60} ({ids.to_text(entry.id)}) was carried out already, in session "
            f"{entry.session!r:.60}, on another branch or before a rollback, and can't be taken back. It is not repeated. "
            "on_repeat='replay' gives its recorded result, 'again' carries it out once more, 'compensate' undoes it first",
            (self.core.effect(entry),),
        )


async def compensate(core: Core, entry: Entry, undo: Callable[..., Any]) -> Entry:
    """Undoes an effect that is done, and writes that down: before, and after."""
    services = core.services
    undoing = entry.now("compensating", services.now_us(), core.lease.holder, state=EffectState.COMPENSATING,
                        token=core.lease.token, session=core.options.session_id)  # fmt: skip
    started = await ledger.put(services, core.lease, undoing, entry)
    if started is None:
        raise EffectUnknownError(f"effect {ids.to_text(entry.id)} was changed by somebody else: look again")
    result = services.codec.decode(entry.result) if entry.result is not None else None
    await core.call(undo, (result,), calling.keyed(undo, f"{entry.provider_key}_undo"))
    undone = started.now("compensated", services.now_us(), core.lease.holder, state=EffectState.COMPENSATED)
    put = await ledger.put(services, core.lease, undone, started)
    if put is None:
        raise EffectUnknownError(f"effect {ids.to_text(entry.id)} was undone, and changed by somebody else: look again")
    return put


def _one_of(what: str, given: Any, choices: Any) -> Any:
    names = [str(one) for one in choices]
    if given not in names:
        raise UsageError(f"{what} is {given!r:.60}: it must be one of {', '.join(map(repr, names))}")
    return choices(given) if isinstance(choices, type) else given
