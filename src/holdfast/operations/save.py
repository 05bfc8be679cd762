"""The save operation: a new checkpoint becomes the head of its session.

Each attempt loads the tip of the session, encodes the state against it, builds the commit and sends
it. On a conflict with another writer the whole commit is refused, and the next attempt follows the
new tip.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from holdfast import telemetry
from holdfast.backends.port import Commit, CommitConflict, RowKey
from holdfast.errors import (
    ConflictError,
    CorruptError,
    MessageLostError,
    NewerStateError,
    StoreBusyError,
    StoreError,
    UsageError,
)
from holdfast.format.rows import head as rows
from holdfast.format.rows.ledger import LEDGER
from holdfast.format.state.record import LIVE, StoredRecord
from holdfast.format.state.write_plan import WritePlan
from holdfast.model import ids
from holdfast.model.ids import is_ours
from holdfast.model.state_migration import FIRST_VERSION
from holdfast.operations import lease as leasing
from holdfast.operations import lookup, state_version
from holdfast.operations.context import StoreContext
from holdfast.operations.encode_state import StateEncoder
from holdfast.operations.message_write import TAKEN
from holdfast.operations.new_checkpoint import build_commit, header_fields
from holdfast.operations.repeat_save import repeat_save
from holdfast.operations.save_labels import SaveHolds
from holdfast.operations.session_cache import SessionTip
from holdfast.operations.validate import FilesLostError, SaveRequest


@telemetry.trace_operation(telemetry.SAVE)
async def save(ctx: StoreContext, request: SaveRequest) -> StoredRecord:
    """Save, and return the record.

    The state is encoded before anything is written: the caller may change it at once.

    Another writer may move the head between reading and committing. Then the commit is refused as a
    whole, the checkpoint is linked to the new head, and committed again; with `expect_head`,
    `ConflictError` is raised instead. After a second conflict the save waits for its turn, in the
    order of the calls, and raises `StoreBusyError` after `timeout` seconds.
    """
    try:
        return await _Save(ctx, request).run()
    except StoreError as error:
        # A retry after a failure before anything was written must use the same id.
        if error.checkpoint_id is None and request.checkpoint_id is not None:
            error.checkpoint_id = ids.to_text(request.checkpoint_id)
        raise


class _SentCommit(NamedTuple):
    """A commit in progress: its record, the tip after it, and the outcome to await."""

    commit: Commit
    stored: StoredRecord
    tip: SessionTip
    outcome: Awaitable[None]

    def sizes(self) -> tuple[int, int]:
        """Return the bytes that the commit stores, and those of the whole state."""
        commit, record = self.commit, self.commit.record
        stored = sum(len(segment.data) for segment in commit.segments) + sum(map(len, commit.blobs.values()))
        return stored + (len(record.data) if record is not None else 0), self.stored.manifest().logical_size()


class _Save:
    """One save, from its first attempt to its last."""

    def __init__(self, ctx: StoreContext, request: SaveRequest) -> None:
        self._ctx = ctx
        self._request = request
        self._session = rows.session_key(request.session_id)
        self._fields = header_fields(ctx, request)
        self._encoder = StateEncoder(ctx, request)
        self._closed: set[int] = set()  # logs that another branch has continued
        self._holds: SaveHolds | None = None
        self._began = time.monotonic()
        self._last_id = request.checkpoint_id  # of the last attempt
        self._tip: SessionTip | None = None  # the parent of the last attempt
        self._doubted: bytes | None = None  # the checkpoint that could not be the parent last time

    # -- attempts ----------------------------------------------------------------------------------------------------

    async def run(self) -> StoredRecord:
        """Save at once if possible, else in the order of the calls."""
        session, contention = self._session, self._ctx.memory.contention
        if not contention.has_line(session):
            stored = await self._try(self._send_at_once)
            if stored is not None:
                return stored
        with contention.count_waiting(session):
            if not contention.is_shared(session):
                stored = await self._try(self._send_in_turn)
                if stored is not None:
                    return stored
            return await self._run_in_turn()

    async def _run_in_turn(self) -> StoredRecord:
        """Save, with retries, while all other saves of this process wait.

        Each attempt follows the stored tip, not the cached one: the latter may be built on a commit
        that will be refused, and so on in a cycle.
        """
        contention = self._ctx.memory.contention
        conflicts = 0
        async with self._ctx.backend.fair_lock(self._session, self._seconds_left) as is_given:
            while is_given and self._seconds_left > 0:
                if contention.is_shared(self._session):
                    stored = await self._try_alone(conflicts)
                else:
                    stored = await self._try(self._send_upon_store)
                if stored is not None:
                    contention.narrow(self._session)
                    return stored
                conflicts += 1
        raise self._make_overtaken_error()

    async def _try_alone(self, conflicts: int) -> StoredRecord | None:
        """Make one attempt while the other processes wait; where they can't, at a random moment."""
        backend = self._ctx.backend
        lock = backend.process_lock(self._seconds_left, self._waited)
        try:
            async with lock as is_given:
                if not is_given:
                    await backend.sleep(self._ctx.memory.contention.pause(self._session, conflicts))
                return await self._try(self._send_upon_store)
        finally:
            lock.release()

    async def _try(self, send: Callable[[], Awaitable[_SentCommit | None]]) -> StoredRecord | None:
        """Make one attempt; return None on a conflict with another writer, to try again."""
        ctx, request, session = self._ctx, self._request, self._session
        if request.checkpoint_id is not None:
            known = await lookup.find_record(ctx, request.checkpoint_id)
            if known is not None:
                return await repeat_save(ctx, request, self._fields, known)
        self._holds = None if request.labels is None else await SaveHolds.load(ctx, request.labels)
        asked_at = time.monotonic()
        try:
            sent = await send()
        except (CorruptError, UsageError, NewerStateError):
            parent = self._tip.checkpoint if self._tip else None
            if parent is None or parent.id == self._doubted:
                raise
            # Before reporting damage or a wrong argument: the cached tip may have been collected,
            # or belong to a commit that is in progress or has failed. So the tip is read from the
            # store again.
            self._doubted = parent.id
            ctx.memory.drop(session)
            return None
        if sent is None:
            return None
        self._last_id = sent.stored.id
        try:
            await sent.outcome
        except BaseException as error:
            ctx.memory.drop_failed(session, sent.tip)
            if isinstance(error, CommitConflict):
                ctx.memory.contention.widen(session, sent.tip.reading, time.monotonic() - asked_at)
                self._learn(error)
                return None
            if isinstance(error, StoreError):
                error.checkpoint_id = ids.to_text(sent.stored.id)
            raise
        telemetry.count_stored(ctx, sent.sizes)
        if self._holds is not None:
            try:
                await self._holds.settle(ctx)
            except StoreError as error:
                error.checkpoint_id = ids.to_text(sent.stored.id)  # which exists
                raise
        return sent.stored

    def _learn(self, conflict: CommitConflict) -> None:
        """Note the facts for the next attempt; raise errors that every attempt would meet."""
        request = self._request
        if conflict.kind == "segment" and isinstance(conflict.detail, int):
            self._closed.add(conflict.detail)
        if conflict.kind == "require" and request.files is not None and request.files.relies_on(conflict.detail):
            raise FilesLostError from conflict
        if conflict.kind == "row" and isinstance(conflict.detail, RowKey) and conflict.detail.space == TAKEN:
            raise MessageLostError(
                f"session {request.session_id!r:.60}: another consumer has taken over a message that it was consuming: "
                "its claim had run out. Nothing was saved"
            ) from conflict
        if conflict.kind == "row" and isinstance(conflict.detail, RowKey) and conflict.detail.space == LEDGER:
            raise ConflictError(
                f"session {request.session_id!r:.60}: an effect whose result would be saved was changed meanwhile. "
                "Look at it (`holdfast effects`), then go on. Nothing was saved"
            ) from conflict

    @property
    def _waited(self) -> float:
        return time.monotonic() - self._began

    @property
    def _seconds_left(self) -> float:
        """How long this save may still wait for others."""
        return self._ctx.backend.capabilities.timeout - self._waited

    def _make_overtaken_error(self) -> StoreBusyError:
        timeout = self._ctx.backend.capabilities.timeout
        return StoreBusyError(
            f"session {self._request.session_id!r:.60} was written to by so many others that this save was overtaken "
            f"for {timeout:g} s. Nothing was saved: repeat it with `checkpoint_id=error.checkpoint_id`, or open the "
            "store with a longer `timeout`",
            checkpoint_id=ids.to_text(self._last_id or self._ctx.new_id(None)),
        )

    # -- one commit --------------------------------------------------------------------------------------------------

    async def _send_at_once(self) -> _SentCommit | None:
        """Send a commit on the cached tip; in turn if there is none."""
        tip = lookup.cached_tip(self._ctx, self._session)
        return await (self._send_in_turn() if tip is None else self._send(tip))

    async def _send_in_turn(self) -> _SentCommit | None:
        """Send a commit in the order of the calls.

        The turn ends when the commit is sent: the next save builds on it. So of many saves that
        have to read the store only the first one does, and all are committed together.
        """
        async with self._ctx.backend.fair_lock(self._session, self._seconds_left) as is_given:
            if not is_given:
                raise self._make_overtaken_error()
            return await self._send(await lookup.get_tip(self._ctx, self._session, self._request.append or ()))

    async def _send_upon_store(self) -> _SentCommit | None:
        """Send a commit on the stored tip."""
        return await self._send(await lookup.revalidated_tip(self._ctx, self._session, self._request.append or ()))

    async def _send(self, tip: SessionTip) -> _SentCommit | None:
        """Encode the state against the tip, build the commit and send it.

        Return None if another save of this process has built on the same tip meanwhile: the commit
        would be refused.
        """
        ctx, request = self._ctx, self._request
        if not _is_at_parent(ctx, request, tip):
            tip = await _load_tip_at_parent(ctx, request, self._session)
        self._tip = tip
        _refuse_foreign_files(request, tip)
        state_version.check_parent(ctx, request, self._fields.get("sv", FIRST_VERSION), tip.checkpoint)
        was_remembered = ctx.memory.get(self._session) is tip
        plan = await self._encoder.plan(tip, self._closed)
        if was_remembered and ctx.memory.get(self._session) is not tip:
            return None
        commit, stored, next_tip = self._build_commit(tip, plan)
        ctx.memory.put(self._session, next_tip)
        return _SentCommit(commit, stored, next_tip, ctx.backend.commit(commit))

    def _build_commit(self, tip: SessionTip, plan: WritePlan) -> tuple[Commit, StoredRecord, SessionTip]:
        ctx, request = self._ctx, self._request
        lease = request.lease
        commit, stored, next_tip = build_commit(
            ctx,
            tip,
            tip.checkpoint,
            self._fields,
            plan.manifest,
            id_=request.checkpoint_id,
            step_index=request.step_index,
            lease=tip.head.lease if lease is not None else None,  # without one, an expired lease is cleared
            claimed=lease.claimed if lease is not None else None,
            segments=plan.segments,
            blobs=plan.blobs,
            messages=request.publish,
        )
        next_tip.lists = self._encoder.known_lists(plan.manifest)
        if request.taken:
            commit.rows = [*commit.rows, *(consumption.write(commit.tree) for consumption in request.taken)]
        if request.extra_rows is not None:
            commit.rows = [*commit.rows, *request.extra_rows(stored)]
        if self._holds is not None:
            commit.rows = [*commit.rows, *self._holds.writes(ctx, stored)]
        if request.files is not None:
            required = (*request.files.require, *(held for held, _ in request.files.held))
            commit.blobs = {**commit.blobs, **request.files.blobs}
            commit.require = [*commit.require, *((id_, LIVE) for id_ in required)]
            commit.delete_records = [*commit.delete_records, *request.files.held]
        return commit, stored, next_tip


def _refuse_foreign_files(request: SaveRequest, tip: SessionTip) -> None:
    """Raise an error unless a holdfast snapshot comes with its files, or is the parent's.

    Nothing else guarantees that the store has the files.
    """
    if request.workspace is None or request.files is not None or not is_ours(request.workspace):
        return
    if request.workspace != (tip.checkpoint.header.get("ws") if tip.checkpoint else None):
        raise UsageError(
            f"the checkpoint names a snapshot of files ({request.workspace:.24}…) that its parent does not have: save "
            "it with `workspace=` the directory, or take it to another store by `copy` or `export`"
        )


def _is_at_parent(ctx: StoreContext, request: SaveRequest, tip: SessionTip) -> bool:
    """Return whether the tip is the parent that the caller wants, and is allowed."""
    head, expected, parent, lease = tip.head, request.expect_head, request.parent_id, request.lease
    return (
        (expected is None or expected == head.checkpoint)
        and (parent is None or (tip.checkpoint is not None and parent == tip.checkpoint.id))
        and ((lease is None and head.lease is None) or leasing.allows(ctx, head, lease))
    )


async def _load_tip_at_parent(ctx: StoreContext, request: SaveRequest, session: bytes) -> SessionTip:
    """Return the tip of the session, as stored, with the requested parent as the checkpoint to follow."""
    ctx.memory.drop(session)  # the cached tip may be old
    tip = await lookup.get_tip(ctx, session)
    leasing.refuse(ctx, request.session_id, tip.head, request.lease)
    if request.expect_head is not None and request.expect_head != tip.head.checkpoint:
        actual = ids.to_text(tip.head.checkpoint) if tip.head.checkpoint else "nothing"
        raise ConflictError(
            f"session {request.session_id!r:.60} stands at {actual}, not at the expected "
            f"{ids.to_text(request.expect_head)}: another writer was first. Read `latest`, decide, and save again"
        )
    if request.parent_id is None or (tip.checkpoint is not None and request.parent_id == tip.checkpoint.id):
        return tip
    parent = await lookup.load_live_record(ctx, request.parent_id)
    if tip.tree is not None and parent.tree != tip.tree:
        raise UsageError(
            f"parent {ids.to_text(parent.id)} belongs to another tree than session {request.session_id!r:.60}. "
            "A session is one line of one tree: use `fork` to go on from there in a new session"
        )
    return SessionTip(
        tree=tip.tree,
        version=tip.version,
        head=tip.head,
        head_value=tip.head_value,
        checkpoint=parent,
        manifest=parent.manifest(),
        reading=tip.reading,
    )
