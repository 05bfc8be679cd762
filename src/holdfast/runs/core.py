"""The heart of a run: its session's lease, its state and journal, and the saves that keep them together.

What follows from here on is written once, as coroutines that await the port and what the program gave; `faces.py` has the
two ways to call it. A save takes everything that the journal has by then, so of steps that end together one saves for all.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.backends.port import RowWrite
from holdfast.errors import (
    ConflictError,
    HoldfastError,
    LeaseHeldError,
    LeaseLostError,
    NewerStateError,
    StoreError,
    UnsupportedValueError,
    UsageError,
)
from holdfast.model import ids
from holdfast.model.approval import DEFAULT_SECONDS, Policy
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.effects import Effect
from holdfast.model.framework import Framework
from holdfast.model.lease import LeaseTerms
from holdfast.model.runs import Autosave
from holdfast.objects import continuing as parts_of_saves
from holdfast.objects import journal, rows
from holdfast.objects.journal import EFFECT, FAILED, OK, REOPENED, Journal, Record
from holdfast.objects.ledger import Entry
from holdfast.objects.record import Stored
from holdfast.operations import arguments, continuing, ledger, reading, state_versions
from holdfast.operations import restore as restoring
from holdfast.operations import save as saving
from holdfast.operations.arguments import SaveRequest
from holdfast.operations.memory import Line
from holdfast.operations.services import Services
from holdfast.runs import failures, frames
from holdfast.runs.places import Places

_log = logging.getLogger("holdfast")
Call = Callable[[Callable[..., Any], Sequence[Any], dict[str, Any]], Awaitable[Any]]
"""How what the program gave is called: on the spot, or awaited, or in a thread."""
Save = Callable[[SaveRequest], Awaitable[Stored]]
Beside = Callable[[Stored], list[RowWrite]]
_UNSAVED = (StoreError, UnsupportedValueError)  # the store could not keep it, or it can't be kept


@dataclass(slots=True, kw_only=True)
class Options:
    """What `client.run` was given, checked."""

    session_id: str
    agent_id: str
    framework: Framework = Framework.CUSTOM
    state: Any = None
    context: dict[str, Any] | None = None
    app_version: str | None = None
    state_version: int | None = None
    autosave: Autosave = field(default_factory=Autosave)
    on_save_error: str = "raise"
    policy: Policy | None = None
    save: Save | None = None  # another way to save than without files
    approval_wait: float | None = 0.0
    approval_seconds: float = DEFAULT_SECONDS


class Core:
    """A run that is open. Threads may share it, and so may the tasks of an event loop."""

    def __init__(self, services: Services, options: Options, lease: LeaseTerms, call: Call) -> None:
        self.services = services
        self.options = options
        self.lease = lease
        self.call = call
        self.lock = threading.Lock()  # of what is counted below; never held while anything is awaited
        self.state: Any = {} if options.state is None else options.state
        self.context: dict[str, Any] = dict(options.context or {})
        self.journal = Journal()
        self.tools: dict[str, str] = {}
        self.stored_tools: dict[str, str] = {}
        self.tree = b""
        self.checkpoint: bytes | None = None  # the one that was saved last, or that the run was resumed from
        self.resumed = False
        self.task_lists: dict[str, dict[str, Any]] = {}  # name: the summary that checkpoints carry
        self.places = Places()
        self.in_flight: set[bytes] = set()
        self.on_path: set[bytes] = set()  # effects that this line of execution has a record of
        self.foreign: dict[bytes, Entry] | None = None  # what the ledger had, beside what the program asked for, when
        # the first effect looked
        self._rows: dict[bytes, tuple[Entry, Entry | None]] = {}  # of effects whose result is not saved yet
        self._rows_in_doubt = False
        self._own_checkpoint: bytes | None = None  # the last one that this run has made
        self._raised: list[tuple[BaseException, Record]] = []
        self._steps_since = 0
        self._saved_at_us = services.now_us()
        self._saved_digest: bytes | None = None
        self._session = rows.session_key(options.session_id)
        self._turn_key = b"\xfe" + self._session
        self._at_once = services.backend.at_once if options.save is None and not options.autosave.only_changed else None
        self._thread_turn = self._at_once.turn(self._turn_key) if self._at_once is not None else None
        self._turn: AbstractAsyncContextManager[object] | None = self._thread_turn
        self._way: continuing.Way | None = None
        self._line: Line | None = None  # where the last save that went on in the journal has led, if it was the last
        self._encoded_part: tuple[dict[str, str], bytes] | None = None

    # -- the beginning -----------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Takes up the session where it stands, under the lease."""
        line = await ledger.line_under(self.services, self.lease)
        assert line.tree is not None  # taking a lease gives a session its tree
        self.tree = line.tree
        if line.tip is None:
            return
        found = await restoring.loaded(self.services, line.tip)
        self.resumed = True
        self.checkpoint = line.tip.id
        self.state = found.execution_state
        what = f"checkpoint {found.checkpoint_id}"
        self.context, self.journal, self.stored_tools = journal.from_context(found.agent_context, what)
        if isinstance(found.tasks, dict):
            self.task_lists = dict(found.tasks)
        self._refuse_newer(found, line.tip)
        self.places = Places(self.journal)
        self.on_path.update(record.about[0] for record in self.journal if record.kind == EFFECT)
        self._saved_digest = self._digest()

    @property
    def checkpoint_id(self) -> str | None:
        return None if self.checkpoint is None else ids.to_text(self.checkpoint)

    def _refuse_newer(self, found: Checkpoint, tip: Stored) -> None:
        """Before anything is done with a state that this program does not know."""
        options = self.options
        known = state_versions.of_save(self.services, self._request())
        if (found.state_version or 0) > known and tip.header["agent"] == options.agent_id:
            raise NewerStateError(
                f"session {options.session_id!r:.60} stands at {found.checkpoint_id}, whose state version is {found.state_version}, "
                f"and this program knows version {known} of agent {options.agent_id!r:.60}: a newer one has saved it. Run that "
                f"one, or say state_version={found.state_version} if this program knows it, too. Nothing was changed"
            )

    # -- places ------------------------------------------------------------------------------------------------------

    def path(self, own: str) -> str:
        """Where a call is made by somebody (the run, a sub-agent) whose own path is given: inside of the step, effect or task
        that is at work here."""
        return own if self.journal.version == journal.FLAT else frames.path_from(self, own)

    # -- records -----------------------------------------------------------------------------------------------------

    def known(self, call: Any) -> Record | None:
        """What is recorded of a step or effect that is asked for."""
        found = self.journal.get(call.place)
        if found is None and getattr(call, "formerly", None) is not None:
            found = self.journal.get(call.formerly)
        return found

    def record(self, record: Record, raised: BaseException | None = None) -> int:
        with self.lock:
            if raised is not None:
                self._raised.append((raised, record))
            if record.kind == EFFECT:
                self.on_path.add(record.about[0])
                if record.status == OK:
                    self.places.note(record)
            return self.journal.add(record)

    async def save_if_interrupted(self, place: str, name: str) -> None:
        """A result that was recorded, and given to nobody, because it could not be saved then or its call was ended."""
        if self.places.forget_interruption(place) and self.journal.saved < len(self.journal):
            await self.save(name)

    def try_again(self, path: str) -> None:
        """What is inside of this path is run anew: it finds what it has done, and what has failed is called again."""
        self.places.begin_again(path)
        self.places.abandon(path, self.journal.entries)
        self._reopen([one for one in self.journal if one.status == FAILED and one.place.startswith(path)])

    def reopen_what_ended(self, error: BaseException, path: str = "") -> None:
        """Failures that led to this error are not raised again, but called again."""
        ended = {id(one) for one in failures.chain(error)}
        self._reopen([record for raised, record in self._raised if id(raised) in ended], path)

    def _reopen(self, failed: Sequence[Record], path: str = "") -> None:
        for record in failed:
            last = self.journal.get(record.place)
            if last is not None and last.status == FAILED and record.place.startswith(path):
                self.record(record._replace(status=REOPENED, payload=b""))

    def raised_again(self, raised: BaseException, record: Record) -> None:
        """A recorded failure was raised once more: if it ends the run, it is tried again in the next life."""
        with self.lock:
            self._raised.append((raised, record))

    def finish(self, entry: Entry, following: Entry) -> None:
        """The ledger's entry goes into the commit of the next checkpoint."""
        with self.lock:
            self._rows[entry.id] = (entry, following)

    def after_step(self, name: str, number: int) -> Awaitable[object]:
        """Saves, if the policy says so. `number` is that of the step's record."""
        if self.options.autosave.steps == 1:
            return _DONE if self._save_at_once(name, number) else self._save_in_turn(name, number)
        return self._save_if_due(name, number)

    async def _save_if_due(self, name: str, number: int) -> None:
        autosave = self.options.autosave
        with self.lock:
            self._steps_since += 1
            waited = 0.0 if autosave.seconds is None else (self.services.now_us() - self._saved_at_us) / 1e6
            is_due = autosave.is_due(self._steps_since, waited)
        if is_due:
            await self._save_in_turn(name, number)

    # -- saving ------------------------------------------------------------------------------------------------------

    async def save(self, name: str | None, number: int | None = None) -> str | None:
        """Makes a checkpoint, and returns its id. With the `number` of a record: unless somebody else's has it already."""
        id_ = await self._save_in_turn(arguments.optional_name("name", name), number)
        return None if id_ is None else ids.to_text(id_)

    def _save_at_once(self, name: str | None, number: int) -> bool:
        """What `_save_in_turn` does, where all that is new is in the journal, the session is known to stand where this run left
        it, and the store is asked by this thread. False if that is not so, or somebody else was first: nothing was saved."""
        if self._at_once is None or self._thread_turn is None:
            return False
        with self._thread_turn.lock:
            kept, way, line = self.journal, self._way, self._line
            if kept.saved >= number:
                return True
            if way is None or line is None or self._rows_in_doubt or journal.KEY in self.context:
                return False
            self._line = None
            with self.lock:
                end = len(kept.entries)
                finished = list(self._rows.values()) if self._rows else ()
            going = self._going(name, kept.entries[kept.saved : end], _beside(finished) if finished else None)
            try:
                prepared = continuing.go_on_at_once(self.services, self._at_once, way, line, going)
            except _UNSAVED as error:
                self._not_saved(error)
                return True
            except BaseException:
                self._doubt()
                raise
            if prepared is None:
                return False
            self._line = prepared.line
            self._is_saved(end, finished, None, prepared.stored)
            return True

    async def _save_in_turn(self, name: str | None, number: int | None) -> bytes | None:
        self._turn = self.services.backend.turn(self._turn_key)  # kept: as long as somebody has it, it is the same one
        async with self._turn:
            if number is not None and self.journal.saved >= number:
                return self.checkpoint
            try:
                await self._save_or_look_again(name)
            except _UNSAVED as error:
                self._not_saved(error)
                return None
            except BaseException:  # it may have been committed all the same
                self._doubt()
                raise
            return self.checkpoint

    def _not_saved(self, error: Exception) -> None:
        self._doubt()
        if self.options.on_save_error != "warn":
            raise error
        _log.warning("the run of session %r goes on, though it could not be saved: %s", self.lease.session_id, error)

    def _doubt(self) -> None:
        """Nobody knows what the store has by now: the next save looks."""
        self._rows_in_doubt, self._own_checkpoint, self._line = True, None, None

    async def _save_or_look_again(self, name: str | None) -> None:
        """A save that somebody has ended may be committed by the store only after this one has looked: what it wrote of the ledger is
        not written again."""
        try:
            await self._save(name)
        except (LeaseLostError, LeaseHeldError):
            raise
        except ConflictError:
            if not self._rows:
                raise
            self._doubt()
            await self._save(name)

    async def _save(self, name: str | None) -> None:
        if self._rows_in_doubt:
            await self._settle_rows()
        options = self.options
        with self.lock:
            end = len(self.journal.entries)  # what is added meanwhile belongs to the next save
            finished = list(self._rows.values())
            digest = self._digest() if options.autosave.only_changed else None
        nothing_new = end == self.journal.saved and not finished and digest is not None
        if nothing_new and digest == self._saved_digest and self.checkpoint is not None:
            return
        stored = await self._committed(name, end, _beside(finished) if finished else None)
        self._is_saved(end, finished, digest, stored)

    def _is_saved(
        self, end: int, finished: Sequence[tuple[Entry, Entry | None]], digest: bytes | None, stored: Stored
    ) -> None:
        """The journal up to there, and the ledger's entries of what is finished, are in that checkpoint."""
        with self.lock:
            self.journal.saved = end
            for entry, _ in finished:
                if self._rows.get(entry.id, (None,))[0] is entry:
                    del self._rows[entry.id]
            self._steps_since = 0
            if self.options.autosave.seconds is not None:
                self._saved_at_us = self.services.now_us()
            self._saved_digest = digest
        self.checkpoint = self._own_checkpoint = stored.header["id"]

    async def _committed(self, name: str | None, end: int, beside: Beside | None) -> Stored:
        """Saves with the journal up to there: its new records alone, if the session stands where this run saved last, and
        has all the others as a list of its own there; else all of it."""
        self._line = None
        line = reading.remembered_line(self.services, self._session)
        follows = line is not None and self._follows(line)
        fresh = self.journal.entries[self.journal.saved : end] if follows else []
        if line is not None and follows and self.options.save is None and journal.KEY not in self.context:
            way = self._way
            if way is None:
                way = self._way = continuing.Way(self.services, self._request(), self.tree, journal.PATH)
            prepared = await continuing.go_on(self.services, way, line, self._going(name, fresh, beside))
            if prepared is not None:
                self._line = prepared.line
                return prepared.stored
        tools = self.tools or self.stored_tools
        request = self._request()
        request.execution_state, request.step_name, request.beside = self.state, name, beside
        request.tasks = self.task_lists or None
        if line is not None and follows:
            assert line.tip is not None
            request.agent_context = journal.into_context(self.context, self.journal.version, None, tools)
            request.append = {journal.PATH: fresh}
            request.expect_head = line.tip.id
            try:
                return await self._saved(request)
            except (LeaseLostError, LeaseHeldError):
                raise
            except ConflictError:  # somebody who has the lease, too, moved the head
                request.append = request.expect_head = None
        await self.services.logs.reserve(self.services.backend)  # now: the steps that follow are one commit each
        request.agent_context = journal.into_context(
            self.context, self.journal.version, self.journal.entries[:end], tools
        )
        return await self._saved(request)

    def _going(self, name: str | None, fresh: Sequence[list[Any]], beside: Beside | None) -> continuing.Going:
        tools = self.tools or self.stored_tools
        part = self._encoded_part
        encoded = part[1] if part is not None and part[0] == tools else self._part(tools)
        return _new(continuing.Going, (name, self.state, self.context, self.task_lists or None, fresh, encoded, beside))

    def _request(self) -> SaveRequest:
        """With what is the same in all saves of the run."""
        options = self.options
        return SaveRequest(
            agent_id=options.agent_id,
            session_id=options.session_id,
            framework=options.framework,
            lease=self.lease,
            app_version=options.app_version,
            state_version=options.state_version,
        )

    def _part(self, tools: dict[str, str]) -> bytes:
        """The run's own part of the context as it is encoded: the same from save to save, until tools are declared."""
        own = journal.own_part(self.journal.version, tools)
        encoded = parts_of_saves.part_with_list(self.services.codec, journal.KEY, own, journal.STEPS)
        self._encoded_part = (dict(tools), encoded)
        return encoded

    def _follows(self, line: Line) -> bool:
        """Whether what is not saved yet can be declared as an append to where the session stands."""
        if line.tip is None or line.manifest is None or line.tip.id != self._own_checkpoint:
            return False
        remembered = line.lists.get(journal.PATH)
        known = remembered.entry if remembered is not None else line.manifest.list_at(journal.PATH)
        return known is not None and known.length == self.journal.saved

    async def _saved(self, request: SaveRequest) -> Stored:
        """With the files of the workspace, if the run has one."""
        if self.options.save is not None:
            return await self.options.save(request)
        return await saving.save(self.services, request)

    async def _settle_rows(self) -> None:
        """After an unclear failure: what of the ledger was written all the same is not written again."""
        for entry, _ in list(self._rows.values()):
            now = await ledger.find(self.services, entry.id, self.tree)
            with self.lock:
                if now is not None and now.history == entry.history:
                    del self._rows[entry.id]
        self._rows_in_doubt = False

    async def _is_as_saved(self) -> bool:
        """Whether a save would keep nothing that the last checkpoint has not."""
        if self._saved_digest is None and self.checkpoint is not None:
            stored = await reading.find_record(self.services, self.checkpoint, self.tree)
            if stored is None or stored.is_tombstone:
                return False
            state, context = await reading.load_state(self.services, stored.manifest(), verify=False)
            context.pop(journal.KEY, None)
            self._saved_digest = self._digest_of(state, context)
        return self._saved_digest == self._digest()

    def _digest(self) -> bytes:
        """Of what a save would keep beside journal and tasks: so nothing new can be told from something."""
        return self._digest_of(self.state, self.context)

    def _digest_of(self, state: Any, context: dict[str, Any]) -> bytes:
        kept = [state, context]
        return hashlib.sha256(self.services.codec.encode(kept, "execution_state")).digest()

    # -- the end -----------------------------------------------------------------------------------------------------

    async def close(self, error: BaseException | None) -> None:
        """Saves what is not saved yet. Failures that ended the run are reopened: the next life tries again."""
        if any(isinstance(one, LeaseLostError) for one in failures.chain(error)):
            return  # it is somebody else's session now
        if error is not None:
            self.reopen_what_ended(error)
        with self.lock:
            is_new = len(self.journal) > self.journal.saved or self._rows or self.checkpoint is None
        if not is_new and await self._is_as_saved():
            return
        try:
            await self.save("failed" if error is not None else "end")
        except HoldfastError:
            if error is None:
                raise
            _log.warning("the run of session %r failed, and its end could not be saved", self.lease.session_id)

    # -- words -------------------------------------------------------------------------------------------------------

    def effect(self, entry: Entry) -> Effect:
        return entry.effect(self.services.codec)


class _Done:
    """Awaited, it is over."""

    def __await__(self) -> Generator[Any, Any, None]:
        return
        yield


_DONE = _Done()
_new = tuple.__new__  # see `objects/continuing.py`


def _beside(finished: Sequence[tuple[Entry, Entry | None]]) -> Beside:
    """What a save writes of effects that are finished, given the checkpoint that has their results."""

    def writes(stored: Stored) -> list[RowWrite]:
        return [replace(entry, checkpoint=stored.id).write(following) for entry, following in finished]

    return writes


def autosave(given: Any) -> Autosave:
    """A policy as such, a number of steps, "step" for each of them, or None for never by itself."""
    if isinstance(given, Autosave):
        return given
    if given is None:
        return Autosave(steps=None)
    if given == "step":
        return Autosave()
    if isinstance(given, int) and not isinstance(given, bool):
        return Autosave(steps=given)
    raise UsageError(f"autosave is {given!r:.60}: it must be 'step', a number of steps, an Autosave, or None")
