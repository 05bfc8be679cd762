"""The engine of a run: lease, state and journal of its session, and the saves of them.

It is written once, as coroutines; `api.py` has the two interfaces. A save takes all records that
the journal has by then, so of steps that end together one saves for all.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from holdfast import telemetry
from holdfast.backends import fork_safety
from holdfast.backends.port import RowKey
from holdfast.errors import (
    ConflictError,
    HoldfastError,
    LeaseHeldError,
    LeaseLostError,
    NewerStateError,
    StoreError,
    UnsupportedValueError,
)
from holdfast.format.rows import head
from holdfast.format.rows.ledger import LedgerEntry
from holdfast.format.rows.run import RunRow
from holdfast.format.state import run_journal
from holdfast.format.state.record import StoredRecord
from holdfast.format.state.run_journal import (
    CARRIED_OUT,
    EFFECT,
    FAILED,
    OK,
    REOPENED,
    JournalRecord,
    RunJournal,
)
from holdfast.format.state.split import ROOTS
from holdfast.model import ids
from holdfast.model.approval import DEFAULT_SECONDS, Policy
from holdfast.model.effect import EffectRecord
from holdfast.model.framework import Framework
from holdfast.model.lease import LeaseTerms
from holdfast.model.run_policy import Autosave
from holdfast.operations import lease as leasing
from holdfast.operations import ledger, lookup, validate
from holdfast.operations import restore as restoring
from holdfast.operations import save as saving
from holdfast.operations import state_version as state_versions
from holdfast.operations.context import StoreContext
from holdfast.operations.message_write import Consumption, MessageWrite
from holdfast.operations.session_cache import SessionTip
from holdfast.operations.take import TakenRun
from holdfast.operations.validate import SaveRequest
from holdfast.runs import call_sites, outcome
from holdfast.runs.call_sites import CallSites, has_key
from holdfast.runs.ledger_match import EffectIndex
from holdfast.runs.message_turns import MessageTurns, collect_turn_rows
from holdfast.runs.progress import RunProgressReport
from holdfast.runs.suspend import WorkedLife

_log = logging.getLogger("holdfast")
Call = Callable[[Callable[..., Any], Sequence[Any], dict[str, Any]], Awaitable[Any]]
"""How a function of the program is called: directly, awaited, or in a thread."""
Save = Callable[[SaveRequest], Awaitable[StoredRecord]]
_UNSAVED = (StoreError, UnsupportedValueError)  # the store could not keep it, or it can't be kept


class RunContent(NamedTuple):
    """What one checkpoint of a run holds, in memory. It is never changed."""

    checksum: bytes  # of the checkpoint: it covers everything that was saved
    state: Any
    context: dict[str, Any]
    journal: list[list[Any]]
    version: int  # of the journal
    tools: dict[str, str]
    tasks: dict[str, dict[str, Any]]


@dataclass(slots=True, kw_only=True)
class RunOptions:
    """The checked arguments of `client.run`."""

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
    known: RunContent | None = None  # used instead of reading, if it is that of the session's head


class PendingSave(NamedTuple):
    """The content of one save."""

    end: int  # of the journal: records from there on belong to the next save
    state: Any  # as it was then: a caller may replace it while it is saved
    context: dict[str, Any]
    rows: list[tuple[LedgerEntry, LedgerEntry | None]]
    digest: bytes | None  # of state and context, where the policy is to save changes only
    messages: list[MessageWrite]
    taken: list[Consumption]
    settled_rows: list[RowKey]


class RunEngine:
    """A run that is open. Threads may share it, and so may the tasks of an event loop."""

    consumes = True  # whether it may consume messages

    def __init__(self, ctx: StoreContext, options: RunOptions, lease: LeaseTerms, call: Call) -> None:
        self.ctx = ctx
        self.options = options
        self.lease = lease
        self.call = call
        self.lock = threading.Lock()  # of the counters below; never held while anything is awaited
        fork_safety.begin_again_in_child(self, RunEngine._begin_again)
        self.state: Any = {} if options.state is None else options.state
        self.context: dict[str, Any] = dict(options.context or {})
        self.journal = RunJournal()
        self.tools: dict[str, str] = {}
        self.stored_tools: dict[str, str] = {}
        self.stored_framework: str | None = None  # of the checkpoint that the run was resumed from
        self.tree = b""
        self.checkpoint: bytes | None = None  # the one that was saved last, or that the run was resumed from
        self.resumed = False
        self._is_migrated = False
        self.task_lists: dict[str, dict[str, Any]] = {}  # name: the summary that checkpoints carry
        self.sites = CallSites()
        self.index = EffectIndex()
        self.opened_us = ctx.now_us()
        self.result: bytes | None = None  # of the run: encoded
        self.progress = RunProgressReport()
        self.life: WorkedLife | None = None  # of a worker's run
        self.taken: TakenRun | None = None
        self.ended: RunRow | None = None
        self.span = ExitStack()  # that of the run is open while its program is
        self.opened_at: tuple[bytes | None, int] = (None, 0)  # the session's head then, and its last sequence number
        self._rows: dict[bytes, tuple[LedgerEntry, LedgerEntry | None]] = {}  # of effects whose result is not saved yet
        self._messages: dict[bytes, MessageWrite] = {}  # of those effects that publish one
        self.turns = MessageTurns()
        self._is_in_doubt = False
        self._own_checkpoint: bytes | None = None  # the last one that this run has made
        self._raised: list[tuple[BaseException, JournalRecord]] = []
        self._failed_keys: set[str] = set()  # places with a key whose failure this life has seen
        self._steps_since = 0
        self._saved_at_us = ctx.now_us()
        self._saved_digest: bytes | None = None
        self._saved_lists: dict[str, list[Any]] | None = None  # of the state, for a caller that replaces lists
        self._extended: dict[str, list[list[Any]]] = {}  # by name: the saved list, and what it was extended to since
        self._checksum: bytes | None = None  # of the last checkpoint that this run has made
        self._saved_state: Any = None  # of that checkpoint
        self._session = head.session_key(options.session_id)
        self._turn_key = b"\xfe" + self._session
        self._turn: AbstractAsyncContextManager[object] | None = None
        self._store: Save = functools.partial(saving.save, ctx) if options.save is None else options.save

    def _begin_again(self) -> None:
        """Make the lock again in a forked child: another thread of its parent may have held it."""
        self.lock = threading.Lock()

    # -- the beginning -----------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Load the session at its head, under the lease."""
        tip = await leasing.load_held_tip(self.ctx, self.lease)
        assert tip.tree is not None  # taking a lease gives a session its tree
        self.tree = tip.tree
        self.opened_at = (None if tip.checkpoint is None else tip.checkpoint.id, tip.head.sequence)
        if tip.checkpoint is None:
            return
        self.resumed = True
        self.checkpoint = tip.checkpoint.id
        self.stored_framework = tip.checkpoint.header.get("fw")
        known, is_current = self.options.known, not state_versions.steps_of(self.ctx, tip.checkpoint)
        # A checkpoint never changes: an equal checksum means equal content. But a migration may be new.
        if known is not None and known.checksum == tip.checkpoint.checksum and is_current:
            self._take(known)
            version = tip.checkpoint.state_version
        else:
            found = await restoring.load_checkpoint(self.ctx, tip.checkpoint)
            self.state, version = found.execution_state, found.state_version or 0
            owner = f"checkpoint {found.checkpoint_id}"
            self.context, self.journal, self.stored_tools = run_journal.from_context(found.agent_context, owner)
            if isinstance(found.tasks, dict):
                self.task_lists = dict(found.tasks)
        self._is_migrated = version != tip.checkpoint.state_version
        self._refuse_newer(version, tip.checkpoint)
        self.index = EffectIndex(self.journal)
        self._saved_digest = self._digest() if self.options.autosave.only_changed else None

    def _take(self, known: RunContent) -> None:
        """Take over the content of a checkpoint; what a run changes is copied."""
        self.state = known.state
        self.context = dict(known.context)
        self.journal = RunJournal(list(known.journal), known.version)
        self.stored_tools = dict(known.tools)
        self.task_lists = dict(known.tasks)

    def content(self) -> RunContent | None:
        """Return the content of the last checkpoint; None if this run has not saved all that it holds.

        The caller has not changed the state since the save, nor anything in it, and never will.
        """
        with self.lock:
            is_saved = len(self.journal) <= self.journal.saved and not self._rows and self.state is self._saved_state
            if self._checksum is None or not is_saved:
                return None
            tools = self.tools or self.stored_tools
            entries = list(self.journal.entries)
            return RunContent(
                self._checksum, self.state, self.context, entries, self.journal.version, tools, self.task_lists
            )

    def declare_lists(self) -> None:
        """Treat a list object of the state as unchanged while it is the same object.

        The caller replaces lists instead of changing them, and saves at once. So a save encodes
        only what is new, and the end of the run has nothing to compare.
        """
        if self._is_migrated:  # these lists are not those of the last checkpoint: the next save stores all of them
            self._saved_lists = {}
            return
        self._own_checkpoint = self.checkpoint
        self._saved_lists = _lists_of(self.state)

    def declare_append(self, name: str, elements: Sequence[Any]) -> list[Any]:
        """Return a list of the state with further elements, for the next state: its save encodes only these."""
        known: list[Any] = self.state.get(name, [])
        chain = self._extended.get(name, [])
        longer = [*known, *elements]
        self._extended[name] = [*(chain if chain and chain[-1] is known else [known]), longer]
        return longer

    def extend_lists(self, added: Mapping[str, Sequence[Any]]) -> None:
        """Append to lists of the state, for a caller that has declared them."""
        with self.lock:
            longer = {name: self.declare_append(name, elements) for name, elements in added.items()}
            self.state = {**self.state, **longer}

    @property
    def checkpoint_id(self) -> str | None:
        return None if self.checkpoint is None else ids.to_text(self.checkpoint)

    def _refuse_newer(self, version: int, tip: StoredRecord) -> None:
        """Raise if a newer program has saved the state, before anything is done with it."""
        options = self.options
        known = state_versions.choose_version(self.ctx, self._request())
        if version > known and tip.header["agent"] == options.agent_id:
            raise NewerStateError(
                f"session {options.session_id!r:.60} stands at {ids.to_text(tip.id)}, whose state version is "
                f"{version}, and this program knows version {known} of agent {options.agent_id!r:.60}: a "
                f"newer one has saved it. Run that one, or say state_version={version} if this program "
                "knows it, too. Nothing was changed"
            )

    # -- places ------------------------------------------------------------------------------------------------------

    def path(self, own: str) -> str:
        """Return the path of a call made here by the run or sub-agent with the path `own`."""
        return own if self.journal.version == run_journal.FLAT else call_sites.find_path(self, own)

    def begin(self, path: str) -> bool:
        """Begin a task or sub-agent; return whether this life has begun it before."""
        self.index.expect_calls_in(path)
        return self.sites.begin(path)

    # -- records -----------------------------------------------------------------------------------------------------

    def find_record(self, call: Any) -> JournalRecord | None:
        """Return the record of a call, perhaps by an earlier version of the program; None without one."""
        found = self.journal.get(call.place)
        for former in getattr(call, "formers", ()):
            found = found or self.journal.get(former.place)
        if found is None and getattr(call, "key", None) is not None:
            for name in (call.name, *(former.tool for former in call.formers)):
                at = self.index.other_under_key(name, call.place)
                found = found or (None if at is None else self.journal.get(at))
        if found is not None and found.status == FAILED and found.place in self._failed_keys:
            return found._replace(status=REOPENED)  # this life got its failure already: the new request is another try
        return found

    def choose_place(self, places: Sequence[str]) -> str:
        """Return the place, of one and those under former names, that has the records.

        That is the one with a result; or else the first former one with any record, since a life
        without `was` has recorded less under the new name; or else the place itself.
        """
        if len(places) == 1 or not self.resumed:
            return places[0]
        for place in places:
            if (found := self.journal.get(place)) is not None and found.status == OK:
                return place
        known = [entry[0] for entry in self.journal.entries]
        for place in places[1:]:
            if any(item == place or item.startswith(f"{place}/") for item in known):
                return place
        return places[0]

    def record(self, record: JournalRecord, raised: BaseException | None = None) -> int:
        with self.lock:
            if raised is not None:
                self._note_raised(raised, record)
            if record.kind == EFFECT:
                self.index.on_path.add(record.about[0])
                if record.status in CARRIED_OUT:
                    self.index.note_record(record)
            return self.journal.add(record)

    async def save_unreturned(self, place: str, name: str) -> None:
        """Save a recorded result that reached no caller: it could not be saved, or its call was cancelled."""
        if self.sites.forget_interruption(place) and self.journal.saved < len(self.journal):
            await self.save(name)

    def try_again(self, path: str) -> None:
        """Run a path again: its results are found, and its failed calls are made again."""
        self.sites.restart(path)
        self.index.abandon(path, self.journal.entries)
        inside = [record for record in self.journal if record.place.startswith(path)]
        # An effect that was refused, and later called with success, is not called again.
        done = {_without_occurrence(record) for record in inside if record.kind == EFFECT and record.status == OK}
        failed = [record for record in inside if record.status == FAILED]
        self._reopen([record for record in failed if _without_occurrence(record) not in done])

    def reopen_failures(self, error: BaseException, path: str = "") -> None:
        """Reopen the failures that led to this error: they are called again, not raised again."""
        ended = {id(item) for item in outcome.error_chain(error)}
        self._reopen([record for raised, record in self._raised if id(raised) in ended], path)

    def _reopen(self, failed: Sequence[JournalRecord], path: str = "") -> None:
        for record in failed:
            last = self.journal.get(record.place)
            if last is not None and last.status == FAILED and record.place.startswith(path):
                self.record(record._replace(status=REOPENED, payload=b""))

    def note_raised_again(self, raised: BaseException, record: JournalRecord) -> None:
        """Note that a recorded failure was raised again: if it ends the run, the next life retries it."""
        with self.lock:
            self._note_raised(raised, record)

    def _note_raised(self, raised: BaseException, record: JournalRecord) -> None:
        self._raised.append((raised, record))
        if has_key(record.place):
            self._failed_keys.add(record.place)

    def find_step(self, error: BaseException) -> str | None:
        """Return the place of the step or effect that raised this error, or what led to it."""
        chain = {id(item) for item in outcome.error_chain(error)}
        return next((record.place for raised, record in reversed(self._raised) if id(raised) in chain), None)

    def finish(self, entry: LedgerEntry, following: LedgerEntry | None, message: MessageWrite | None = None) -> None:
        """Write the ledger's entry in the commit of the next checkpoint, and the message that it publishes."""
        with self.lock:
            self._rows[entry.id] = (entry, following)
            if message is not None:
                self._messages[entry.id] = message

    def _content(self) -> tuple[Any, dict[str, Any]]:
        """Return the state and context that a checkpoint has now."""
        return (self.state, self.context) if self.turns.turn is None else self.turns.turn.content(self.ctx.codec)

    async def after_step(self, name: str, number: int) -> None:
        """Save if the autosave policy says so; `number` is the number of the step's record."""
        autosave = self.options.autosave
        if autosave.steps != 1:
            with self.lock:
                self._steps_since += 1
                waited = 0.0 if autosave.seconds is None else (self.ctx.now_us() - self._saved_at_us) / 1e6
                if not autosave.is_due(self._steps_since, waited):
                    return
        await self.save(name, number)

    # -- saves -------------------------------------------------------------------------------------------------------

    async def save(self, name: str | None, number: int | None = None) -> str | None:
        """Save a checkpoint and return its id; nothing is saved if record `number` is in one already.

        A conflict is resolved by a retry that first reads the store: a cancelled save may be
        committed by the store later, together with its rows of the ledger.
        """
        name = validate.optional_name("name", name)
        self._turn = self.ctx.backend.lock(self._turn_key)  # a reference: the backend holds its locks weakly
        async with self._turn:
            if number is not None and self.journal.saved >= number:
                return self.checkpoint_id
            try:
                for attempts_left in (2, 1, 0):
                    if self._is_in_doubt:
                        await self._settle_rows()
                    unsaved = self._get_unsaved()
                    if unsaved is None:
                        return self.checkpoint_id
                    request = await self._request_for(name, unsaved)
                    try:
                        stored = await self._store(request)
                    except (LeaseLostError, LeaseHeldError):
                        raise
                    except ConflictError:
                        if not attempts_left or not (request.append or unsaved.rows or unsaved.taken):
                            raise
                        self._doubt()
                    else:
                        self._mark_saved(unsaved, stored)
                        break
            except _UNSAVED as error:
                self._doubt()
                if self.options.on_save_error != "warn":
                    raise
                session = self.lease.session_id
                _log.warning("the run of session %r continues, though it could not be saved: %s", session, error)
                return None
            except BaseException:  # it may have been committed all the same
                self._doubt()
                raise
            return self.checkpoint_id

    def _doubt(self) -> None:
        """Make the next save read what the store has: the outcome of the last one is unknown."""
        self._is_in_doubt, self._own_checkpoint, self._checksum = True, None, None

    def _get_unsaved(self) -> PendingSave | None:
        """Return what a save has to store; None if the policy is to save changes only, and there are none."""
        with self.lock:
            end = len(self.journal.entries)  # records that are added during a save belong to the next one
            rows = list(self._rows.values())
            state, context = self._content()
            digest = self._digest_of(state, context) if self.options.autosave.only_changed else None
            messages, taken = list(self._messages.values()), list(self.turns.taken)
        is_same = digest is not None and digest == self._saved_digest and self.checkpoint is not None
        if is_same and end == self.journal.saved and not rows and not taken:
            return None
        return PendingSave(end, state, context, rows, digest, messages, taken, list(self.turns.settled_rows))

    async def _request_for(self, name: str | None, unsaved: PendingSave) -> SaveRequest:
        """Return a request that appends to the journal of the run's last checkpoint, or else stores all of it."""
        tip = lookup.cached_tip(self.ctx, self._session)
        tools = self.tools or self.stored_tools
        request = self._request()
        request.execution_state, request.step_name, request.tasks = unsaved.state, name, self.task_lists or None
        if unsaved.rows or unsaved.settled_rows:
            request.extra_rows = collect_turn_rows(unsaved.rows, unsaved.settled_rows)
        request.publish, request.taken = unsaved.messages, unsaved.taken
        entries: list[list[Any]] | None = None
        if tip is not None and tip.checkpoint is not None and self._is_own_tip(tip):
            request.append = {run_journal.PATH: self.journal.entries[self.journal.saved : unsaved.end]}
            request.expect_head = tip.checkpoint.id
            kept = self._find_extended_lists(tip, unsaved.state)
            if kept:
                request.execution_state = {name: value for name, value in unsaved.state.items() if name not in kept}
                request.append |= {(ROOTS[0], name): added for name, added in kept.items()}
        else:
            await self.ctx.logs.reserve(self.ctx.backend)  # now, so that each of the following steps is one commit
            entries = self.journal.entries[: unsaved.end]
        request.agent_context = run_journal.into_context(unsaved.context, self.journal.version, entries, tools)
        return request

    def _request(self) -> SaveRequest:
        """Return a request with the fields that all saves of the run have in common."""
        options = self.options
        return SaveRequest(
            agent_id=options.agent_id,
            session_id=options.session_id,
            framework=options.framework,
            lease=self.lease,
            app_version=options.app_version,
            state_version=options.state_version,
        )

    def _is_own_tip(self, tip: SessionTip) -> bool:
        """Return whether the session stands at this run's last checkpoint, with all saved records as a log."""
        if tip.checkpoint is None or tip.manifest is None or tip.checkpoint.id != self._own_checkpoint:
            return False
        remembered = tip.lists.get(run_journal.PATH)
        known = remembered.entry if remembered is not None else tip.manifest.list_at(run_journal.PATH)
        return known is not None and known.length == self.journal.saved

    def _find_extended_lists(self, tip: SessionTip, state: Any) -> dict[str, list[Any]]:
        """Return the lists that the last checkpoint has, stored element by element, with what they have more."""
        kept = {}
        for name, value in _lists_of(state).items():
            saved = (self._saved_lists or {}).get(name)
            if saved is None or not tip.find_list((ROOTS[0], name)):
                continue
            chain = [id(known) for known in self._extended.get(name, ())]
            if saved is value or (id(saved) in chain and id(value) in chain):
                kept[name] = value[len(saved) :]
        return kept

    def _mark_saved(self, unsaved: PendingSave, stored: StoredRecord) -> None:
        with self.lock:
            self.journal.saved = unsaved.end
            if self._saved_lists is not None:
                self._saved_lists = _lists_of(unsaved.state)
                for name, chain in list(self._extended.items()):
                    at = next((n for n, item in enumerate(chain) if item is self._saved_lists.get(name)), len(chain))
                    self._extended[name] = chain[at:]
            for entry, _ in unsaved.rows:
                if self._rows.get(entry.id, (None,))[0] is entry:
                    del self._rows[entry.id]
                    self._messages.pop(entry.id, None)
            self.turns.mark_saved(unsaved.taken, unsaved.settled_rows)
            self._steps_since = 0
            if self.options.autosave.seconds is not None:
                self._saved_at_us = self.ctx.now_us()
            self._saved_digest = unsaved.digest
            self.checkpoint = self._own_checkpoint = stored.id
            self._checksum = stored.checksum
            self._saved_state = unsaved.state

    async def _settle_rows(self) -> None:
        """Drop the rows that a save of unknown outcome has written after all."""
        for entry, _ in list(self._rows.values()):
            now = await ledger.find(self.ctx, entry.id, self.tree)
            with self.lock:
                if now is not None and now.history == entry.history:
                    del self._rows[entry.id]
                    self._messages.pop(entry.id, None)
        await self.turns.settle_taken(self.ctx, self.tree)
        self._is_in_doubt = False

    async def _is_as_saved(self) -> bool:
        """Return whether a save would store nothing that the last checkpoint does not have."""
        if self._saved_digest is None and self.checkpoint is not None:
            stored = await lookup.find_record(self.ctx, self.checkpoint, self.tree)
            if stored is None or stored.is_tombstone:
                return False
            state, context = await lookup.load_state(self.ctx, stored.manifest(), verify=False)
            context.pop(run_journal.KEY, None)
            self._saved_digest = self._digest_of(state, context)
        return self._saved_digest == self._digest()

    def _digest(self) -> bytes:
        """Return a digest of state and context."""
        return self._digest_of(self.state, self.context)

    def _digest_of(self, state: Any, context: dict[str, Any]) -> bytes:
        kept = [state, context]
        return hashlib.sha256(self.ctx.codec.encode(kept, "execution_state")).digest()

    # -- the end -----------------------------------------------------------------------------------------------------

    async def close(self, error: BaseException | None) -> None:
        """Save the rest. Failures that ended the run are reopened: the next life retries them."""
        if any(isinstance(item, LeaseLostError) for item in outcome.error_chain(error)):
            return  # another worker has the session now
        is_suspended = self.life is not None and self.life.suspension is not None
        if error is not None and not is_suspended:  # what the program has handled before it waits stays recorded
            self.reopen_failures(error)
        elif error is None:
            self.turns.consume(self)
        try:
            await self._save_end(error, "end" if error is None else "suspended" if is_suspended else "failed")
        finally:
            await self.turns.close(error)

    async def _save_end(self, error: BaseException | None, name: str) -> None:
        with self.lock:
            is_new = len(self.journal) > self.journal.saved or self._rows or self.turns.taken or self.checkpoint is None
        if not is_new and (self._saved_lists is not None or await self._is_as_saved()):
            return
        try:
            await self.save(name)
        except HoldfastError:
            if error is None:
                raise
            _log.warning("the run of session %r failed, and its end could not be saved", self.lease.session_id)

    # -- words -------------------------------------------------------------------------------------------------------

    def attributes(self) -> dict[str, str]:
        """Return what the spans of a run have in common."""
        session = self.options.session_id
        return {telemetry.SESSION: session, telemetry.CONVERSATION: session, telemetry.AGENT: self.options.agent_id}

    def effect(self, entry: LedgerEntry) -> EffectRecord:
        return entry.effect(self.ctx.codec)


def _without_occurrence(record: JournalRecord) -> str:
    """Return path, name and identity of a record's place."""
    return record.place.rpartition("#")[0]


def _lists_of(state: Any) -> dict[str, list[Any]]:
    return {name: value for name, value in state.items() if type(value) is list} if isinstance(state, dict) else {}
