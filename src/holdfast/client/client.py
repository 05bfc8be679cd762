"""The client: the interface for developers. It checks arguments and calls operations.

Operations other than save and restore are imported when they are called: `import holdfast` stays
light.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace, TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from holdfast.client.approvals import ClientApprovals
from holdfast.client.conversion import ClientConversion
from holdfast.client.history import ClientHistory, decided_by
from holdfast.client.key_management import ClientKeys
from holdfast.client.maintenance import ClientMaintenance
from holdfast.client.runs import ClientRuns
from holdfast.client.team import ClientTeam
from holdfast.client.topics import ClientTopics
from holdfast.client.transfer import ClientTransfer
from holdfast.client.undo import ClientUndo
from holdfast.client.work import ClientWork
from holdfast.errors import UsageError
from holdfast.model import ids
from holdfast.model.framework import Framework
from holdfast.model.lease import DEFAULT_SECONDS, LeaseTerms
from holdfast.operations import resolve_target, validate

if TYPE_CHECKING:
    import asyncio

    from holdfast.backends.bridge.base import Bridge
    from holdfast.backends.port import AnyBackend, AsyncBackend, BlockingBackend
    from holdfast.checkpoint_store.protocol import ClientStore
    from holdfast.coordination.claim import Claim, SyncClaim
    from holdfast.coordination.contract import Contract
    from holdfast.coordination.event_stream import EventStream
    from holdfast.coordination.lease import Acquisition, Lease, SyncLease
    from holdfast.model.checkpoint import Checkpoint
    from holdfast.model.contract_list import RegisteredContract
    from holdfast.model.handoff import Handoff
    from holdfast.model.listing import Session, Timeline, Tree
    from holdfast.model.message import Message
    from holdfast.model.reports import RollbackReport
    from holdfast.operations.rollback import Compensation
    from holdfast.workspace.api import Workspace
    from holdfast.workspace.rollback import FileRollback
    from holdfast.workspace.sync import SyncWorkspace


class Client(
    ClientMaintenance,
    ClientWork,
    ClientTransfer,
    ClientApprovals,
    ClientHistory,
    ClientUndo,
    ClientRuns,
    ClientTeam,
    ClientTopics,
    ClientConversion,
    ClientKeys,
):
    """A checkpoint store for AI agents. `async with Client.sqlite() as client:` opens the default one."""

    _tidying: asyncio.Task[None] | None = None  # kept here, as a loop does not keep its tasks

    def _bridge(self, backend: AnyBackend) -> Bridge:
        if backend.capabilities.awaitable:
            from holdfast.backends.bridge.event_loop import AsyncBridge

            return AsyncBridge(cast("AsyncBackend", backend))
        from holdfast.backends.bridge.worker_thread import ThreadBridge

        return ThreadBridge(cast("BlockingBackend", backend))

    def _tidy(self) -> None:
        from holdfast.client import background_gc

        if self._tidying is None or not background_gc.is_running(self._tidying):
            self._tidying = background_gc.start_task(self._ctx, cast("Bridge", self._ctx.backend))

    # -- the five operations -----------------------------------------------------------------------------------------

    async def save(
        self,
        agent_id: str,
        framework: Framework | str = Framework.CUSTOM,
        execution_state: Any = None,
        session_id: str | None = None,
        parent_id: str | None = None,
        context: Any = None,
        step_index: int | None = None,
        step_name: str | None = None,
        ttl_seconds: float | None = None,
        *,
        checkpoint_id: str | None = None,
        append: Mapping[Any, Sequence[Any]] | None = None,
        expect_head: str | None = None,
        lease: LeaseTerms | None = None,
        tasks: Any = None,
        app_version: str | None = None,
        state_version: int | None = None,
        workspace: str | os.PathLike[str] | Workspace | SyncWorkspace | None = None,
        tag: str | None = None,
        move_tag: bool = False,
        pin: bool = False,
        publish: Sequence[Message] = (),
        **metadata: Any,
    ) -> str:
        """Saves a checkpoint, which becomes the head of its session, and returns its id. It is durable then.

        Left out, `session_id` makes a new session, `parent_id` means the session's head,
        `step_index` the parent's plus one. Another parent makes a fork. A state or context that is
        left out, or None, is stored as `{}`. Any other keyword is metadata.

        `agent_id` and `framework` say what made it; listings filter by the agent. `context` is
        state of your own beside the framework's. `step_name` names the step, `tasks` lists units
        of work with their status, `app_version` is your program's. With `ttl_seconds` the
        checkpoint expires that long after the save.

        With `append={"messages": [...]}` the list is the parent's plus these elements and is left
        out of `execution_state`: the cost is then that of the new elements. The parent must have
        that list; `append={"+messages": [...]}` begins one where it has none.

        `checkpoint_id` is an idempotency key: the same id with the same content is a no-op.
        `expect_head` refuses to save (`ConflictError`) unless it is the session's head. Under a
        `lease` of `client.lease(session_id)`, no other writer may save to the session.

        `state_version` numbers the form of the caller's states. Left out, it is the newest that
        the migrations of this agent lead to, else 1. A state that follows a higher version of the
        same agent is refused (`NewerStateError`).

        With `workspace`, a directory or what `client.workspace(...)` returned, a snapshot of its
        files is saved with the state, both or neither. `tag` names the checkpoint and `pin` pins
        it, as `client.tag` and `client.pin` do, in the same commit; a tag that is in use refuses
        the save (`ConflictError`) unless `move_tag=True`. The messages in `publish` are published
        in the same commit, both or neither.
        """
        session_id = validate.session_under(lease, session_id)
        request = validate.SaveRequest(
            agent_id=validate.agent_of_save(agent_id),
            session_id=validate.new_session_id() if session_id is None else session_id,
            framework=framework if type(framework) is Framework else validate.framework_of_save(framework),
            execution_state={} if execution_state is None else execution_state,
            agent_context={} if context is None else context,
            lease=lease,
            tasks=tasks,
        )
        # Most saves leave out most of these: omitted ones are not checked, and keep the request's
        # defaults.
        if parent_id is not None:
            request.parent_id = await resolve_target.id_or_search(self._ctx, parent_id)
        if step_index is not None:
            request.step_index = validate.step(step_index)
        if step_name is not None:
            request.step_name = validate.name("step_name", step_name)
        if ttl_seconds is not None:
            request.ttl_seconds = validate.ttl(ttl_seconds)
        if metadata:
            request.metadata = validate.metadata(metadata)
        if checkpoint_id is not None:
            request.checkpoint_id = ids.from_text(checkpoint_id)
        if append is not None:
            request.append, request.lists_of_parent = validate.append(append)
        if expect_head is not None:
            request.expect_head = await resolve_target.id_or_search(self._ctx, expect_head)
        if app_version is not None:
            request.app_version = validate.name("app_version", app_version)
        if state_version is not None:
            request.state_version = validate.state_version(state_version)
        if tag is not None or pin is not False or move_tag is not False:
            request.labels = validate.labels(tag, pin=pin, move_tag=move_tag, origin=self._origin())
        if publish:
            request.publish = await self._prepare_messages(publish)
        if workspace is not None:
            return ids.to_text((await self._open_workspace(workspace).save(request)).id)
        return ids.to_text((await self._saving.save(self._ctx, request)).id)

    async def restore(self, checkpoint_id: str, verify: bool = True, *, migrate: bool = True) -> Checkpoint:
        """Returns a checkpoint with its state, verified against its checksum.

        The state is migrated to the newest version that the migrations of its agent lead to,
        unless `migrate=False`. Only reads; the state is the caller's. Any reference that `resolve`
        takes names a checkpoint, here and in the other methods; an id is the fastest.
        """
        from holdfast.operations import restore as restoring

        async def restore(id_: bytes) -> Checkpoint:
            return await restoring.restore(self._ctx, id_, verify=verify, migrate=migrate)

        return await resolve_target.act_on(self._ctx, checkpoint_id, restore)

    async def handoff(
        self,
        checkpoint_id: str,
        target_agent_id: str,
        schema: str | None = None,
        *,
        new_id: str | None = None,
        lease: LeaseTerms | None = None,
        contract: Contract[Any] | None = None,
        view: Callable[[Any], Any] | None = None,
    ) -> str:
        """Addresses a checkpoint to another agent, and returns the id of the handoff.

        The handoff is a child that keeps the source's agent, metadata and TTL. `new_id` gives it
        an id, and makes a retry safe. A `lease` of the session ends with it.

        With a `contract`, only the fields that it names are handed over, after they were validated;
        the others, and the context, stay at the source. `view` makes the value of the state first,
        for states that have it at another place.
        """
        from holdfast.operations import fork as forking

        project = None
        if contract is not None:
            from holdfast.coordination import contract_use

            if schema is not None:
                raise UsageError("handoff takes schema, a label, or contract, not both")
            schema, project = contract.label, contract_use.projection(contract, view)
            await contract_use.register(self._ctx, contract)
        elif view is not None:
            raise UsageError("view= makes the value of a contract: give contract=, too")

        to = validate.name("target_agent_id", target_agent_id)
        schema = validate.optional_name("schema", schema)
        given = validate.optional_id(new_id)

        async def handoff(id_: bytes) -> str:
            made = await forking.handoff(self._ctx, id_, to, schema, new_id=given, lease=lease, project=project)
            return ids.to_text(made.id)

        return await resolve_target.act_on(self._ctx, checkpoint_id, handoff)

    @validate.session_first_awaited
    async def timeline(
        self, session_id: str | None = None, *, agent_id: str | None = None, limit: int | None = 50
    ) -> Timeline:
        """Lists the session's checkpoints on all branches, newest first, without their states.

        With `agent_id` only those that the agent made or was handed; `limit=None` gives all. Empty
        if there are none.
        """
        from holdfast.operations import timeline as listing

        if session_id is None:
            raise UsageError("timeline needs a session_id; `sessions()` lists the sessions of an agent or of the store")
        return await listing.timeline(
            self._ctx,
            validate.name("session_id", session_id),
            agent_id=validate.optional_name("agent_id", agent_id),
            limit=validate.limit(limit),
        )

    async def expire(self, checkpoint_id: str) -> bool:
        """Expires a checkpoint: it can't be restored any more, its children can. True if it was live.

        A head that stood there moves to the nearest live ancestor.
        """
        from holdfast.operations import expire as expiring

        origin = self._origin()
        return await resolve_target.act_on(
            self._ctx, checkpoint_id, lambda id_: expiring.expire(self._ctx, id_, origin=origin)
        )

    # -- finding -----------------------------------------------------------------------------------------------------

    @validate.session_first_awaited
    async def latest(
        self, session_id: str | None = None, *, agent_id: str | None = None, migrate: bool = True
    ) -> Checkpoint | None:
        """Returns the head of a session with its state, as `restore` does; None if there is none.

        Without `session_id`, of the session saved to last.
        """
        from holdfast.operations import restore as restoring
        from holdfast.operations import timeline as listing

        name, agent = validate.optional_name("session_id", session_id), validate.optional_name("agent_id", agent_id)
        name = await listing.last_session(self._ctx, agent) if name is None else name
        return None if name is None else await restoring.latest(self._ctx, name, agent, migrate=migrate)

    async def get(self, checkpoint_id: str) -> Checkpoint:
        """Returns the checkpoint without its state."""
        from holdfast.operations import restore as restoring

        return await resolve_target.act_on(self._ctx, checkpoint_id, lambda id_: restoring.get(self._ctx, id_))

    async def find(self, ending: str) -> list[str]:
        """Returns the ids that end in these hex digits, at most two. Expired ones only if there is no other."""
        from holdfast.operations import resolve as refs

        return [ids.to_text(id_) for id_ in await refs.find_ids(self._ctx, ending)]

    async def sessions(self, agent_id: str | None = None, limit: int | None = None) -> list[Session]:
        """Lists the sessions, the one saved to last first."""
        from holdfast.operations import timeline as listing

        agent = validate.optional_name("agent_id", agent_id)
        return await listing.sessions(self._ctx, agent_id=agent, limit=validate.limit(limit))

    async def session_ids(self, prefix: str = "", limit: int | None = None) -> list[str]:
        """Lists the names of the sessions that begin with `prefix`, in the order of their bytes.

        Faster than `sessions`: it reads no checkpoint, so sessions that have expired may be among
        them.
        """
        from holdfast.operations import timeline as listing

        return await listing.session_ids(self._ctx, validate.name("prefix", prefix), validate.limit(limit))

    async def session(self, session_id: str) -> Session | None:
        """Returns one session and its head, without its state; None if there is none."""
        from holdfast.operations import timeline as listing

        return await listing.session(self._ctx, validate.name("session_id", session_id))

    async def tree(self, session_id: str) -> Tree:
        """Returns all checkpoints of the session's tree, with those of its forks."""
        from holdfast.operations import timeline as listing

        return await listing.tree(self._ctx, validate.name("session_id", session_id))

    # -- files -------------------------------------------------------------------------------------------------------

    def workspace(self, path: str | os.PathLike[str], **options: Any) -> Workspace:
        """Opens the directory that an agent works in, for snapshots of its files.

        Give it to `save(..., workspace=workspace)`. `Workspace` documents the options.
        """
        from holdfast.workspace.api import Workspace

        return Workspace(path, self, **options)

    # -- going other ways --------------------------------------------------------------------------------------------

    async def save_checkpoint(self, checkpoint: Checkpoint, *, lease: LeaseTerms | None = None) -> str:
        """Saves a checkpoint that was built elsewhere, under its own id.

        Its time of creation, its sequence number and its checksum are decided here: only in these
        does the restored checkpoint differ from the given one.
        """
        validate.session_under(lease, checkpoint.session_id)
        request = validate.SaveRequest(
            agent_id=validate.name("agent_id", checkpoint.agent_id),
            session_id=validate.name("session_id", checkpoint.session_id),
            framework=Framework.of(checkpoint.framework),
            execution_state=checkpoint.execution_state,
            agent_context=checkpoint.agent_context,
            parent_id=validate.optional_id(checkpoint.parent_id),
            step_index=validate.step(checkpoint.step_index),
            step_name=validate.optional_name("step_name", checkpoint.step_name),
            ttl_seconds=validate.ttl(checkpoint.ttl_seconds),
            metadata=dict(checkpoint.metadata),
            checkpoint_id=ids.from_text(checkpoint.checkpoint_id),
            lease=lease,
            tasks=checkpoint.tasks,
            workspace=validate.optional_name("workspace", checkpoint.workspace),
            app_version=validate.optional_name("app_version", checkpoint.app_version),
            state_version=validate.state_version(checkpoint.state_version),
            handoff_target=validate.optional_name("handoff_target", checkpoint.handoff_target),
            handoff_schema=validate.optional_name("handoff_schema", checkpoint.handoff_schema),
        )
        return ids.to_text((await self._saving.save(self._ctx, request)).id)

    @property
    def _backend(self) -> SimpleNamespace:
        """For programs written for checkpnt: `client._backend.save(checkpoint)`.

        Its README saves the results of adapters this way.
        """
        return SimpleNamespace(save=self.save_checkpoint)

    async def rollback(
        self,
        session_id: str,
        to: str,
        *,
        expect_head: str | None = None,
        lease: LeaseTerms | None = None,
        strict: bool = False,
        acknowledge: Sequence[str] = (),
        compensate: Mapping[str, Callable[..., Any]] | None = None,
        by: str | None = None,
        workspace: str | os.PathLike[str] | Workspace | SyncWorkspace | None = None,
        keep: str | None = None,
        force: bool = False,
        dry_run: bool = False,
    ) -> RollbackReport:
        """Moves the session's head to another checkpoint of its tree. Nothing is removed.

        `to` is an id, or a reference as `resolve` takes it. What came after it stays as a branch,
        and `undo` goes back there.

        What was done to the outside world stays done: the report names such effects, those with an
        unknown outcome, and agents that continued from a later handoff. With `strict` the rollback
        is refused (`UnacknowledgedError`, with the report) unless each of them is named in
        `acknowledge`, by id; the acknowledgement is recorded. `compensate` maps tools to functions
        that undo them: these are called first, with the result of each such effect, the latest
        first. `by` is who decided so.

        With `workspace`, the files of this directory go back with the state, both or neither
        (`Workspace.restore` documents `keep` and `force`); `report.files` says how, and
        `workspace.undo()` takes back both. With `dry_run` nothing is done, and the report says
        what would be.
        """
        from holdfast.operations.rollback import rollback_with

        name = validate.name("session_id", session_id)
        validate.session_under(lease, name)
        to_id, decider = await resolve_target.id_of(self._ctx, to), decided_by(by)
        return await rollback_with(
            self._ctx,
            name,
            to_id,
            expect_head=None if expect_head is None else await resolve_target.id_or_search(self._ctx, expect_head),
            lease=lease,
            strict=strict,
            acknowledge=validate.ids_of("acknowledge", acknowledge),
            by=decider,
            dry_run=dry_run,
            origin=self._origin(by),
            files=self._files_to_move(workspace, name, to_id, keep, force=force),
            compensation=self._compensation(None if dry_run else compensate, decider),
        )

    def _files_to_move(
        self, workspace: Any, session_id: str, to: bytes, keep: str | None, *, force: bool
    ) -> FileRollback | None:
        if workspace is None:
            if keep is not None or force:
                raise UsageError("keep and force are about files: name the workspace")
            return None
        from holdfast.workspace.rollback import FileRollback

        return FileRollback(self._open_workspace(workspace), session_id, to, keep, force=force)

    def _compensation(self, undos: Mapping[str, Callable[..., Any]] | None, by: str) -> Compensation | None:
        if not undos:
            return None
        from holdfast.operations.rollback import Compensation
        from holdfast.runs import compensate

        compensate.check(undos)
        return Compensation(
            undos, lambda planned: compensate.compensate(self._ctx, planned, undos, self._caller_of_functions(), by)
        )

    def _caller_of_functions(self) -> Any:
        """Return the caller of functions that users pass in."""
        from holdfast.runs import api

        return api._call_awaited

    # -- sharing -----------------------------------------------------------------------------------------------------

    def lease(
        self, session_id: str, *, seconds: float = DEFAULT_SECONDS, wait: float = 0.0, holder: str | None = None
    ) -> Acquisition[Lease, SyncLease]:
        """Acquires the right to be the only writer of a session.

        `async with client.lease("s") as lease:`, then `save(..., lease=lease)`. It lasts for
        `seconds`, is renewed in the background while the block runs, and is released at its end.
        While it lives, saves without it are refused; one that expired or was taken over is
        refused, too (`LeaseLostError`). If another holds it, waits for at most `wait` seconds,
        then raises `LeaseHeldError`; a holder that died on this machine is replaced at once.
        `await client.lease(...)` gives one to renew and release by hand.
        """
        from holdfast.coordination import lease as leases

        name = validate.name("session_id", session_id)
        return leases.Acquisition(
            lambda: leases.acquire(self._ctx, leases.Lease, name, seconds, wait, holder),
            lambda: leases.acquire(self._ctx, leases.SyncLease, name, seconds, wait, holder),
        )

    async def inbox(self, agent_id: str, *, include_claimed: bool = False) -> list[Handoff]:
        """Lists the handoffs to the agent that can be claimed, the oldest first.

        With `include_claimed` also those that were claimed, continued or handed on.
        """
        from holdfast.operations import inbox as listing

        name = validate.name("agent_id", agent_id)
        return await listing.inbox(self._ctx, name, include_claimed=include_claimed)

    def claim(
        self,
        handoff_id: str,
        agent_id: str,
        *,
        seconds: float = DEFAULT_SECONDS,
        wait: float = 0.0,
        holder: str | None = None,
        claim_id: str | None = None,
        contract: Contract[Any] | None = None,
        returns: Contract[Any] | None = None,
    ) -> Acquisition[Claim, SyncClaim]:
        """Claims a handoff for the agent it is addressed to.

        `async with client.claim(id, "b") as claim:` gives `claim.checkpoint`, with its state, and
        `claim.lease`, for `save(..., lease=claim.lease)`.

        Exactly one claimant gets it; all others get a `ConflictError` that names the one. The
        handoff becomes the session's head; if another save moved the head since,
        `claim.moved_from` is where it was. The lease lasts, is renewed and ends as that of
        `lease`. A claim that ends before anything was saved under it leaves the handoff open for
        the next one. `claim_id` makes a retry after an unclear failure safe.

        With a `contract`, `claim.value` is what was handed over, as the contract's class. It is
        read before the claim is taken: a value that can't be read leaves the handoff open.

        Work that `run.delegate` offered ends with `claim.complete(result)` or `claim.fail(error)`;
        until then its head stays where the last worker left it. `returns` is the contract of the
        result, unless it is the one that was agreed on.
        """
        from holdfast.coordination import claim as claims
        from holdfast.coordination.lease import Acquisition

        request = claims.request(handoff_id, agent_id, seconds, wait, holder, claim_id, contract, returns)
        return Acquisition(lambda: claims.claim(self._ctx, request), lambda: claims.sync_claim(self._ctx, request))

    async def contracts(self) -> list[RegisteredContract]:
        """Lists the contracts that were used with the store, by name and version."""
        from holdfast.operations import contract as contracts

        return await contracts.list_contracts(self._ctx)

    # -- following ---------------------------------------------------------------------------------------------------

    def events(
        self,
        session_id: str | None = None,
        agent_id: str | None = None,
        after: str | None = None,
        *,
        follow: bool = True,
        poll_seconds: float = 1.0,
    ) -> EventStream:
        """Streams checkpoints and handoffs as they are saved: `async for event in client.events():`.

        Events come without states; of one session, and of what the agent made or was handed, if
        these are given. `after` is the `cursor` of the last event that was processed: each later
        one is given once, in the order of the saves, even across restarts. "start" gives
        everything that is there; without it, the stream begins at its first step. Saves of this
        client are given at once, those of other processes within `poll_seconds`. With
        `follow=False` the stream ends when there is no more. It ends when the client is closed.
        """
        from holdfast.coordination import event_stream

        return event_stream.open_stream(
            self._ctx, session_id, agent_id, after, follow=follow, poll_seconds=poll_seconds
        )

    async def cursor(self) -> str:
        """Returns the present cursor: `events(after=...)` yields the saves from here on.

        Stored before the first event is processed, it makes a restart miss nothing.
        """
        from holdfast.operations import events

        return (await events.get_end_cursor(self._ctx)).text

    # -- as others expect it -----------------------------------------------------------------------------------------

    def as_store(self, agent_id: str = "agent") -> ClientStore:
        """Returns the plain five-method `CheckpointStore` that agent loops with a pluggable store expect."""
        from holdfast.checkpoint_store.protocol import ClientStore

        return ClientStore(self, agent_id)

    async def close(self) -> None:
        """Releases the store. All acknowledged saves are durable already."""
        if self._tidying is not None:
            from holdfast.client import background_gc

            await background_gc.stop(self._tidying)
        await self._ctx.backend.close()

    async def __aenter__(self) -> Self:
        self._ctx.backend.get_ready()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
