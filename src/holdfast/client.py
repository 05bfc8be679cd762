"""The client: what developers call. No logic: arguments are checked, operations are called.

Operations other than save and restore are imported when they are called: `import holdfast` stays light.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from holdfast.asking import Asking
from holdfast.errors import UsageError
from holdfast.keeping import Keeping
from holdfast.model import ids
from holdfast.model.framework import Framework
from holdfast.model.lease import DEFAULT_SECONDS, LeaseTerms
from holdfast.moving import Moving
from holdfast.operations import arguments
from holdfast.travelling import Travelling, decided_by
from holdfast.undoing import Undoing

if TYPE_CHECKING:
    import asyncio

    from holdfast.backends.bridge import Bridge
    from holdfast.backends.port import AnyBackend, AsyncBackend, BlockingBackend
    from holdfast.claims import Claim
    from holdfast.eventstreams import EventStream
    from holdfast.leases import Acquiring, Lease
    from holdfast.model.approval import Policy
    from holdfast.model.checkpoint import Checkpoint
    from holdfast.model.effects import Effect
    from holdfast.model.handoff import Handoff
    from holdfast.model.listing import Session, Timeline, Tree
    from holdfast.model.reports import RollbackReport
    from holdfast.model.runs import SubagentTrace
    from holdfast.runs.faces import Run
    from holdfast.store import ClientStore
    from holdfast.workspace.rolling_back import FilesGoBack
    from holdfast.workspace.workspace import SyncWorkspace, Workspace


class Client(Keeping, Moving, Asking, Travelling, Undoing):
    """Keeps agents' places. `async with Client.sqlite() as client:` opens the default store, one local file."""

    _tidying: asyncio.Task[None] | None = None  # kept here, as a loop does not keep its tasks

    def _bridge(self, backend: AnyBackend) -> Bridge:
        if backend.capabilities.awaitable:
            from holdfast.backends.direct import Direct

            return Direct(cast("AsyncBackend", backend))
        from holdfast.backends.offload import Offload

        return Offload(cast("BlockingBackend", backend))

    def _tidy(self) -> None:
        from holdfast import tidying

        if self._tidying is None or not tidying.is_under_way(self._tidying):
            self._tidying = tidying.in_a_task(self._services, cast("Bridge", self._services.backend))

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
        **metadata: Any,
    ) -> str:
        """Saves a checkpoint, which becomes the head of its session, and returns its id. It is durable then.

        Left out, `session_id` makes a new session, `parent_id` means the session's head, `step_index` the parent's
        plus one. Another parent makes a fork. With `append={"messages": [...]}` the list is the parent's plus these
        elements and is left out of `execution_state`: the cost is then that of the new elements. `checkpoint_id` makes
        a repetition safe: the same id with the same content is a no-op. `expect_head` refuses to save
        (`ConflictError`) unless the session stands there. Under a `lease` of `client.lease(session_id)`, nobody else
        may write to the session. `state_version` numbers the form of the caller's states; left out, it is the newest
        that the migrations of this agent lead to, else 1, and a state that follows a higher version of the same agent
        is refused (`NewerStateError`). With `workspace`, a directory or what `client.workspace(...)` gave, a snapshot of its
        files is taken and saved with the state, or neither is. A state or context that is left out, or None, is stored as `{}`. Any other
        keyword is metadata.
        """
        session_id = arguments.session_under(lease, session_id)
        request = arguments.SaveRequest(
            agent_id=arguments.name("agent_id", agent_id),
            session_id=arguments.new_session_id() if session_id is None else session_id,
            framework=Framework.of(framework),
            execution_state={} if execution_state is None else execution_state,
            agent_context={} if context is None else context,
            lease=lease,
            tasks=tasks,
        )
        # Most saves leave out most of these: what is not given is not checked, and stays as it is in a new request.
        if parent_id is not None:
            request.parent_id = ids.from_text(parent_id)
        if step_index is not None:
            request.step_index = arguments.step(step_index)
        if step_name is not None:
            request.step_name = arguments.name("step_name", step_name)
        if ttl_seconds is not None:
            request.ttl_seconds = arguments.ttl(ttl_seconds)
        if metadata:
            request.metadata = arguments.metadata(metadata)
        if checkpoint_id is not None:
            request.checkpoint_id = ids.from_text(checkpoint_id)
        if append is not None:
            request.append = arguments.append(append)
        if expect_head is not None:
            request.expect_head = ids.from_text(expect_head)
        if app_version is not None:
            request.app_version = arguments.name("app_version", app_version)
        if state_version is not None:
            request.state_version = arguments.state_version(state_version)
        if workspace is not None:
            from holdfast.workspace.workspace import opened

            return ids.to_text((await opened(self._services, self._workspaces, workspace).save(request)).id)
        return ids.to_text((await self._saving.save(self._services, request)).id)

    async def restore(self, checkpoint_id: str, verify: bool = True, *, migrate: bool = True) -> Checkpoint:
        """The checkpoint with its state, checked against its checksum, and brought to the newest version that the
        migrations of its agent lead to (not with `migrate=False`). Only reads; the state is the caller's."""
        from holdfast.operations import restore as restoring

        return await restoring.restore(self._services, ids.from_text(checkpoint_id), verify=verify, migrate=migrate)

    async def handoff(
        self,
        checkpoint_id: str,
        target_agent_id: str,
        schema: str | None = None,
        *,
        new_id: str | None = None,
        lease: LeaseTerms | None = None,
    ) -> str:
        """Addresses the checkpoint to another agent: a child that keeps the source's agent, metadata and TTL. Returns
        its id; `new_id` gives it one, and makes a repetition safe. A `lease` of the session ends with it."""
        from holdfast.operations import fork as forking

        target = arguments.name("target_agent_id", target_agent_id)
        schema = arguments.optional_name("schema", schema)
        source = ids.from_text(checkpoint_id)
        made = await forking.handoff(
            self._services, source, target, schema, new_id=arguments.optional_id(new_id), lease=lease
        )
        return ids.to_text(made.id)

    async def timeline(
        self, agent_id: str | None = None, session_id: str | None = None, limit: int | None = 50
    ) -> Timeline:
        """The session's checkpoints, all branches, newest first, without their states; with `agent_id` those that the
        agent made or was handed; `limit=None` gives all. Empty if there are none."""
        from holdfast.operations import timeline as listing

        if session_id is None:
            raise UsageError("timeline needs a session_id; `sessions()` lists the sessions of an agent or of the store")
        return await listing.timeline(
            self._services,
            arguments.name("session_id", session_id),
            agent_id=arguments.optional_name("agent_id", agent_id),
            limit=arguments.limit(limit),
        )

    async def expire(self, checkpoint_id: str) -> bool:
        """Ends a checkpoint: it can't be restored any more, its children can. A head that stood there moves to the
        nearest live ancestor. True if it was live."""
        from holdfast.operations import expire as expiring

        return await expiring.expire(self._services, ids.from_text(checkpoint_id), origin=self._origin())

    # -- finding -----------------------------------------------------------------------------------------------------

    async def latest(
        self, agent_id: str | None = None, session_id: str | None = None, *, migrate: bool = True
    ) -> Checkpoint | None:
        """The checkpoint a session stands at, with its state, as `restore` gives it; without `session_id`, of the session
        saved to last."""
        from holdfast.operations import restore as restoring
        from holdfast.operations import timeline as listing

        agent = arguments.optional_name("agent_id", agent_id)
        if session_id is None:
            found = await listing.sessions(self._services, agent_id=agent, limit=1)
            if not found:
                return None
            session_id = found[0].session_id
        name = arguments.name("session_id", session_id)
        return await restoring.latest(self._services, name, agent, migrate=migrate)

    async def get(self, checkpoint_id: str) -> Checkpoint:
        """The checkpoint without its state."""
        from holdfast.operations import restore as restoring

        return await restoring.get(self._services, ids.from_text(checkpoint_id))

    async def find(self, ending: str) -> list[str]:
        """The ids that end in these hex digits, at most two: what a short id stands for. Expired ones, if no other."""
        from holdfast.operations import graves

        digits = ending.replace("-", "").lower()
        found = await self._services.backend.find_ids(digits, 2) or await graves.find_ids(self._services, digits, 2)
        return [ids.to_text(id_) for id_ in found]

    async def sessions(self, agent_id: str | None = None, limit: int | None = None) -> list[Session]:
        """The sessions, the one saved to last first."""
        from holdfast.operations import timeline as listing

        agent = arguments.optional_name("agent_id", agent_id)
        return await listing.sessions(self._services, agent_id=agent, limit=arguments.limit(limit))

    async def session_ids(self, prefix: str = "", limit: int | None = None) -> list[str]:
        """The names of the sessions that begin with `prefix`, in the order of their bytes. Quicker than `sessions`: it
        looks at no checkpoint, so some that have expired since may be among them."""
        from holdfast.operations import timeline as listing

        return await listing.session_ids(self._services, arguments.name("prefix", prefix), arguments.limit(limit))

    async def session(self, session_id: str) -> Session | None:
        """One session and the checkpoint it stands at, without its state; None if there is none."""
        from holdfast.operations import timeline as listing

        return await listing.session(self._services, arguments.name("session_id", session_id))

    async def tree(self, session_id: str) -> Tree:
        """All checkpoints of the session's tree, with those of its forks."""
        from holdfast.operations import timeline as listing

        return await listing.tree(self._services, arguments.name("session_id", session_id))

    # -- files -------------------------------------------------------------------------------------------------------

    def workspace(self, path: str | os.PathLike[str], **options: Any) -> Workspace:
        """The directory that an agent works in, for snapshots of its files: `save(..., workspace=workspace)`. `Workspace`
        documents the options."""
        from holdfast.workspace.workspace import Workspace

        return Workspace(path, self, **options)

    # -- going other ways --------------------------------------------------------------------------------------------

    async def save_checkpoint(self, checkpoint: Checkpoint, *, lease: LeaseTerms | None = None) -> str:
        """Saves a checkpoint that was built elsewhere, under its own id. When it was created, its place in the session and its checksum
        are decided here: what `restore` gives differs in these from what was built."""
        arguments.session_under(lease, checkpoint.session_id)
        request = arguments.SaveRequest(
            agent_id=arguments.name("agent_id", checkpoint.agent_id),
            session_id=arguments.name("session_id", checkpoint.session_id),
            framework=Framework.of(checkpoint.framework),
            execution_state=checkpoint.execution_state,
            agent_context=checkpoint.agent_context,
            parent_id=arguments.optional_id(checkpoint.parent_id),
            step_index=arguments.step(checkpoint.step_index),
            step_name=arguments.optional_name("step_name", checkpoint.step_name),
            ttl_seconds=arguments.ttl(checkpoint.ttl_seconds),
            metadata=dict(checkpoint.metadata),
            checkpoint_id=ids.from_text(checkpoint.checkpoint_id),
            lease=lease,
            tasks=checkpoint.tasks,
            workspace=arguments.optional_name("workspace", checkpoint.workspace),
            app_version=arguments.optional_name("app_version", checkpoint.app_version),
            state_version=arguments.state_version(checkpoint.state_version),
            handoff_target=arguments.optional_name("handoff_target", checkpoint.handoff_target),
            handoff_schema=arguments.optional_name("handoff_schema", checkpoint.handoff_schema),
        )
        return ids.to_text((await self._saving.save(self._services, request)).id)

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
        """Moves the session's head to another checkpoint of its tree: `to` is an id, or a reference as `resolve`
        takes it. Nothing is removed: what came after stays as a branch, and `undo` goes back there.

        What was done to the outside world stays done: the report names such effects, those in doubt, and agents that went
        on from a later handoff. With `strict` it is refused (`UnacknowledgedError`, with the report) unless each of them
        is named in `acknowledge`, by id; that they were is written down. `compensate` maps tools to functions that undo
        them: these are called first, with the result of each such effect, the latest first. `by` is who decided so.

        With `workspace`, the files of this directory go back with the state, both or neither (`Workspace.restore`, of which
        `keep` and `force` are); `report.files` says how, and `workspace.undo()` takes back both. With `dry_run` nothing is
        done, and the report says what would be.
        """
        from holdfast.operations import rollback as rolling_back

        name = arguments.name("session_id", session_id)
        arguments.session_under(lease, name)
        undone: tuple[Effect, ...] = ()
        target, decider = await self._id_of(to), decided_by(by)
        given = arguments.ids_of("acknowledge", acknowledge)
        terms: dict[str, Any] = {
            "expect_head": arguments.optional_id(expect_head),
            "lease": lease,
            "strict": strict,
            "acknowledge": given,
            "by": decider,
        }
        files: FilesGoBack | None = None
        if workspace is not None:
            from holdfast.workspace.rolling_back import FilesGoBack
            from holdfast.workspace.workspace import opened

            files = FilesGoBack(opened(self._services, self._workspaces, workspace), name, target, keep, force=force)
        elif keep is not None or force:
            raise UsageError("keep and force are about files: name the workspace")
        if compensate and not dry_run:
            from holdfast.runs import compensating

            compensating.check(compensate)
            looked = terms | {"strict": False}  # what is undone need not be acknowledged
            planned = await rolling_back.rollback(self._services, name, target, **looked, dry_run=True)
            if strict:
                compensating.refuse_the_rest(planned, compensate, given)
            if files is not None:
                await files.refuse()  # before anything is undone for it
            undone = await compensating.compensate(self._services, planned, compensate, self._calling(), decider)
            terms["acknowledge"] = given - {one.effect_id for one in undone}
        origin = self._origin(by)
        if files is not None:
            report = await files.rollback(terms, origin, dry_run=dry_run)
        else:
            report = await rolling_back.rollback(self._services, name, target, **terms, dry_run=dry_run, origin=origin)
        if not undone:
            return report
        import dataclasses

        return dataclasses.replace(report, compensated=undone)

    def _calling(self) -> Any:
        """How functions that callers give are called."""
        from holdfast.runs import faces

        return faces._call_awaited

    # -- sharing -----------------------------------------------------------------------------------------------------

    def lease(
        self, session_id: str, *, seconds: float = DEFAULT_SECONDS, wait: float = 0.0, holder: str | None = None
    ) -> Acquiring[Lease]:
        """The right to be the only writer of a session: `async with client.lease("s") as lease:`, then
        `save(..., lease=lease)`.

        It lasts for `seconds`, is renewed in the background while the block runs, and is released at its end. While it
        lives, saves without it are refused; one that ran out or was taken over is refused, too (`LeaseLostError`). If
        another holds it, waits for at most `wait` seconds, then raises `LeaseHeldError`; a holder that died on this
        machine is replaced at once. `await client.lease(...)` gives one to renew and release by hand.
        """
        from holdfast import leases

        name = arguments.name("session_id", session_id)
        return leases.Acquiring(lambda: leases.acquire(self._services, leases.Lease, name, seconds, wait, holder))

    async def inbox(self, agent_id: str, *, include_claimed: bool = False) -> list[Handoff]:
        """What was handed to the agent and can be claimed, the oldest first. With `include_claimed` also what somebody
        has claimed, gone on from or handed on."""
        from holdfast.operations import inbox as listing

        name = arguments.name("agent_id", agent_id)
        return await listing.inbox(self._services, name, include_claimed=include_claimed)

    def claim(
        self,
        handoff_id: str,
        agent_id: str,
        *,
        seconds: float = DEFAULT_SECONDS,
        wait: float = 0.0,
        holder: str | None = None,
        claim_id: str | None = None,
    ) -> Acquiring[Claim]:
        """Takes a handoff for the agent it is addressed to: `async with client.claim(id, "b") as claim:` gives
        `claim.checkpoint`, with its state, and `claim.lease`, for `save(..., lease=claim.lease)`.

        Exactly one gets it; everybody else gets a `ConflictError` that says who has it. The session stands at the handoff
        then; if somebody saved to it since, `claim.moved_from` says where it stood. The lease lasts, is renewed and
        ends as that of `lease`. A claim that ends before anything was saved under it leaves the handoff open for the
        next one. `claim_id` makes a repetition after an unclear failure safe.
        """
        from holdfast import claims
        from holdfast.leases import Acquiring

        request = claims.request(handoff_id, agent_id, seconds, wait, holder, claim_id)
        return Acquiring(lambda: claims.claim(self._services, request))

    # -- runs --------------------------------------------------------------------------------------------------------

    def run(
        self,
        session_id: str,
        agent_id: str = "agent",
        framework: Framework | str = Framework.CUSTOM,
        *,
        state: Any = None,
        context: dict[str, Any] | None = None,
        workspace: Any = None,
        app_version: str | None = None,
        state_version: int | None = None,
        autosave: Any = "step",
        on_save_error: str = "raise",
        policy: Policy | None = None,
        approval_wait: float | None = 0.0,
        approval_seconds: float | None = None,
        seconds: float = DEFAULT_SECONDS,
        wait: float = DEFAULT_SECONDS,
        holder: str | None = None,
    ) -> Acquiring[Run]:
        """A program that goes on where it stopped: `async with client.run("order-42", agent_id="buyer") as run:`, then
        `await run.step(...)`, `run.effect(...)`, `run.tasks(...)`. docs/runs.md says what they promise.

        Holds the session's lease, which is renewed in the background: if another has it, waits for at most `wait` seconds,
        then raises `LeaseHeldError`; a holder that died on this machine is replaced at once. Resumes if the session
        exists; `state` and `context` are for the first time. With `workspace` each checkpoint has a snapshot of these files. Saves after each step: `autosave` is "step", a number of
        steps, an `Autosave`, or None. A save that fails raises; with `on_save_error="warn"` it is logged, and the run
        goes on. `policy` decides which effects wait for approval, for at most `approval_wait` seconds (None: as long as it
        takes); then `ApprovalPendingError` ends the run, and the next one goes on from there. An approval counts for
        `approval_seconds` from when it was asked for (None: a day).
        """
        from holdfast import leases, runopening
        from holdfast.runs import faces

        save = None
        if workspace is not None:
            from holdfast.workspace.workspace import opened

            save = opened(self._services, self._workspaces, workspace).save
        options = runopening.options(
            session_id, agent_id, framework, state, context, save, app_version, state_version, autosave,
            on_save_error, policy, approval_wait, approval_seconds,
        )  # fmt: skip
        return leases.Acquiring(lambda: faces.opened(self._services, options, seconds, wait, holder))

    async def effects(self, session_id: str | None = None, *, in_doubt: bool = False) -> list[Effect]:
        """The effects in the ledger of the session's tree, or of all, the latest first; with `in_doubt` those of which
        nobody knows whether they were carried out."""
        from holdfast.operations import ledger

        name = arguments.optional_name("session_id", session_id)
        return await ledger.effects(self._services, session_id=name, in_doubt=in_doubt)

    async def traces(self, ref: str) -> tuple[SubagentTrace, ...]:
        """What had become of a run's sub-agents by a checkpoint, which is named as for `fork`: by its id, a tag, or a session,
        which stands for its head. Within the run, `run.traces` has them."""
        from holdfast.runs import subagents

        return await subagents.stored_traces(self._services, await self._id_of(ref))

    async def resolve_effect(
        self, effect_id: str, outcome: str, *, result: Any = None, by: str, note: str | None = None
    ) -> Effect:
        """Says what became of an effect in doubt: "done", with its `result`, or "not_done": then it may be carried out.
        "acknowledge" says of one that is done that it may stay so, and stands in no other's way any more. `by` is who
        says so."""
        from holdfast.operations import ledger

        return await ledger.resolve(
            self._services,
            ids.from_text(effect_id, "an effect's id", "`effects` lists them"),
            outcome=arguments.one_of("outcome", outcome, ("done", "not_done", "acknowledge")),
            result=result,
            by=arguments.name("by", by),
            note=arguments.optional_name("note", note),
        )

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
        """What is saved, as it comes: `async for event in client.events():`. Each event is a checkpoint or a handoff,
        without its state; of one session, and of what the agent made or was handed, if these are given.

        `after` is the `cursor` of the last event that was dealt with: what came after it is given, each once, in the
        order of the saves, whatever happened meanwhile. "start" gives everything that is there; without it, what comes
        from the first step on. What this client saves is given at once, what other processes save within
        `poll_seconds`. With `follow=False` the stream ends when there is no more. It ends when the client is closed.
        """
        from holdfast import eventstreams

        return eventstreams.open_stream(
            self._services, session_id, agent_id, after, follow=follow, poll_seconds=poll_seconds
        )

    async def cursor(self) -> str:
        """The cursor of now: `events(after=...)` gives what is saved from here on. Kept before the first event is dealt
        with, it makes a restart miss nothing."""
        from holdfast.operations import events

        return (await events.now(self._services)).text

    # -- as others expect it -----------------------------------------------------------------------------------------

    def as_store(self, agent_id: str = "agent") -> ClientStore:
        """The plain five-method `CheckpointStore` that agent loops with a pluggable store expect."""
        from holdfast.store import ClientStore

        return ClientStore(self, agent_id)

    async def close(self) -> None:
        """Releases the store. What was saved is durable already."""
        if self._tidying is not None:
            from holdfast import tidying

            await tidying.stop(self._tidying)
        await self._services.backend.close()

    async def __aenter__(self) -> Self:
        self._services.backend.get_ready()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
