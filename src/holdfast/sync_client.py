"""The client without `await`: each method steps the coroutine of the same name. A test holds the signatures equal."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast, overload

from holdfast.asking import SyncAsking
from holdfast.backends.stepping import run_inline
from holdfast.client import Client
from holdfast.errors import UsageError
from holdfast.model.framework import Framework
from holdfast.model.lease import DEFAULT_SECONDS, LeaseTerms
from holdfast.opening import DEFAULT_CACHE_BYTES, Opening
from holdfast.operations import arguments

if TYPE_CHECKING:
    import threading
    from datetime import timedelta

    from holdfast.backends.bridge import Bridge
    from holdfast.backends.port import AnyBackend, AsyncBackend, BlockingBackend
    from holdfast.bundles import Place
    from holdfast.claims import SyncClaim
    from holdfast.codec.limits import Limits
    from holdfast.codec.types import TypeRegistry
    from holdfast.eventstreams import SyncEventStream
    from holdfast.leases import SyncLease
    from holdfast.model.approval import Policy
    from holdfast.model.bisection import Bisection
    from holdfast.model.bundle import CopyReport, ExportReport, ImportReport
    from holdfast.model.checkpoint import Checkpoint
    from holdfast.model.comparison import Comparison
    from holdfast.model.diff import Diff
    from holdfast.model.editing import Edits
    from holdfast.model.effects import Effect
    from holdfast.model.handoff import Handoff
    from holdfast.model.holds import Pin, Tag
    from holdfast.model.listing import Session, Timeline, Tree
    from holdfast.model.migrations import Migrations
    from holdfast.model.oplog import Operation
    from holdfast.model.overview import Overview, RunStatus
    from holdfast.model.replay import ReplayReport
    from holdfast.model.reports import (
        CollectionReport,
        ForkReport,
        ImportedReport,
        MigrationReport,
        RetentionReport,
        RollbackReport,
        Stats,
        StoreUsage,
        VerifyReport,
    )
    from holdfast.model.restore_report import AdoptReport, UndoReport
    from holdfast.model.retention import Retention
    from holdfast.model.runs import SubagentTrace
    from holdfast.model.workspace import Snapshot
    from holdfast.runs.faces import SyncRun
    from holdfast.store import SyncClientStore
    from holdfast.travelling import Directory
    from holdfast.workspace.workspace import SyncWorkspace, Workspace


class _Inline(Client):
    """A client whose coroutines never suspend."""

    _is_plain = True
    _tidying_thread: threading.Thread | None = None

    def _bridge(self, backend: AnyBackend) -> Bridge:
        from holdfast.backends.inline import Inline

        if backend.capabilities.awaitable:
            from holdfast.backends.loop_thread import blocking

            return Inline(blocking(cast("AsyncBackend", backend)))
        return Inline(cast("BlockingBackend", backend))

    def _tidy(self) -> None:
        from holdfast import tidying

        if self._tidying_thread is None or not self._tidying_thread.is_alive():
            self._tidying_thread = tidying.in_a_thread(self._services, cast("Bridge", self._services.backend))

    def _calling(self) -> Any:
        from holdfast.runs import faces

        return faces._call_plainly


class SyncClient(SyncAsking, Opening):
    """`Client` without `await`, for any thread, with or without an event loop running. Threads may share one: their
    saves are committed together when they meet. `Client` documents the methods."""

    def __init__(
        self,
        backend: AnyBackend,
        *,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        types: TypeRegistry | None = None,
        limits: Limits | None = None,
        migrations: Migrations | None = None,
    ) -> None:
        self._client: _Inline = _Inline(
            backend, cache_bytes=cache_bytes, types=types, limits=limits, migrations=migrations
        )
        self._services = self._client._services

    def save(
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
        return run_inline(
            self._client.save(
                agent_id,
                framework,
                execution_state,
                session_id,
                parent_id,
                context,
                step_index,
                step_name,
                ttl_seconds,
                checkpoint_id=checkpoint_id,
                append=append,
                expect_head=expect_head,
                lease=lease,
                tasks=tasks,
                app_version=app_version,
                state_version=state_version,
                workspace=workspace,
                **metadata,
            )
        )

    def restore(self, checkpoint_id: str, verify: bool = True, *, migrate: bool = True) -> Checkpoint:
        return run_inline(self._client.restore(checkpoint_id, verify, migrate=migrate))

    def handoff(
        self,
        checkpoint_id: str,
        target_agent_id: str,
        schema: str | None = None,
        *,
        new_id: str | None = None,
        lease: LeaseTerms | None = None,
    ) -> str:
        return run_inline(self._client.handoff(checkpoint_id, target_agent_id, schema, new_id=new_id, lease=lease))

    def timeline(self, agent_id: str | None = None, session_id: str | None = None, limit: int | None = 50) -> Timeline:
        return run_inline(self._client.timeline(agent_id, session_id, limit))

    def expire(self, checkpoint_id: str) -> bool:
        return run_inline(self._client.expire(checkpoint_id))

    def latest(
        self, agent_id: str | None = None, session_id: str | None = None, *, migrate: bool = True
    ) -> Checkpoint | None:
        return run_inline(self._client.latest(agent_id, session_id, migrate=migrate))

    def get(self, checkpoint_id: str) -> Checkpoint:
        return run_inline(self._client.get(checkpoint_id))

    def find(self, ending: str) -> list[str]:
        return run_inline(self._client.find(ending))

    def sessions(self, agent_id: str | None = None, limit: int | None = None) -> list[Session]:
        return run_inline(self._client.sessions(agent_id, limit))

    def session_ids(self, prefix: str = "", limit: int | None = None) -> list[str]:
        return run_inline(self._client.session_ids(prefix, limit))

    def session(self, session_id: str) -> Session | None:
        return run_inline(self._client.session(session_id))

    def tree(self, session_id: str) -> Tree:
        return run_inline(self._client.tree(session_id))

    def workspace(self, path: str | os.PathLike[str], **options: Any) -> SyncWorkspace:
        from holdfast.workspace.workspace import SyncWorkspace

        return SyncWorkspace(path, self, **options)

    def save_checkpoint(self, checkpoint: Checkpoint, *, lease: LeaseTerms | None = None) -> str:
        return run_inline(self._client.save_checkpoint(checkpoint, lease=lease))

    @overload
    def fork(
        self,
        ref: str,
        session_id: str | None = None,
        *,
        set: Edits | None = None,
        workspace: Directory | None = None,
        new_id: str | None = None,
        strict: bool = False,
        acknowledge: Sequence[str] = (),
        by: str | None = None,
    ) -> ForkReport: ...

    @overload
    def fork(
        self,
        ref: str,
        session_id: str | Sequence[str] | None = None,
        *,
        set: Sequence[Edits],
        workspace: Directory | Sequence[Directory] | None = None,
        new_id: str | None = None,
        strict: bool = False,
        acknowledge: Sequence[str] = (),
        by: str | None = None,
    ) -> list[ForkReport]: ...

    def fork(
        self,
        ref: str,
        session_id: str | Sequence[str] | None = None,
        *,
        set: Edits | Sequence[Edits] | None = None,  # noqa: A002 - as above
        workspace: Directory | Sequence[Directory] | None = None,
        new_id: str | None = None,
        strict: bool = False,
        acknowledge: Sequence[str] = (),
        by: str | None = None,
    ) -> ForkReport | list[ForkReport]:
        options: Any = {"set": set, "workspace": workspace, "new_id": new_id, "strict": strict, "by": by}
        forked: ForkReport | list[ForkReport] = run_inline(
            self._client.fork(ref, cast("Any", session_id), acknowledge=acknowledge, **options)
        )
        return forked

    def replay(
        self,
        session_id: str,
        program: Any = None,
        *,
        from_: str | None = None,
        mode: str = "recorded",
        steps: Mapping[str, str] | None = None,
        set: Edits | None = None,  # noqa: A002 - as in `fork`
        workspace: Directory | None = None,
        name: str | None = None,
        on_repeat: str | None = None,
        policy: Any = None,
    ) -> ReplayReport:
        return run_inline(
            self._client.replay(
                session_id, program, from_=from_, mode=mode, steps=steps, set=set, workspace=workspace, name=name,
                on_repeat=on_repeat, policy=policy,
            )
        )  # fmt: skip

    def resolve(self, ref: str) -> str:
        return run_inline(self._client.resolve(ref))

    def diff(self, a: str, b: str) -> Diff:
        return run_inline(self._client.diff(a, b))

    def compare(self, session_a: str, session_b: str) -> Comparison:
        return run_inline(self._client.compare(session_a, session_b))

    def snapshot_of(self, ref: str) -> Snapshot | None:
        return run_inline(self._client.snapshot_of(ref))

    def read_file(self, ref: str, path: str | bytes) -> bytes:
        return run_inline(self._client.read_file(ref, path))

    def bisect(
        self, session_id: str, predicate: Callable[..., bool | Awaitable[bool]], *, files: bool = False
    ) -> Bisection:
        return run_inline(self._client.bisect(session_id, predicate, files=files))

    def rollback(
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
        return run_inline(
            self._client.rollback(
                session_id,
                to,
                expect_head=expect_head,
                lease=lease,
                strict=strict,
                acknowledge=acknowledge,
                compensate=compensate,
                by=by,
                workspace=workspace,
                keep=keep,
                force=force,
                dry_run=dry_run,
            )
        )

    def lease(
        self, session_id: str, *, seconds: float = DEFAULT_SECONDS, wait: float = 0.0, holder: str | None = None
    ) -> SyncLease:
        """`with client.lease("s") as lease:` renews it from a thread of its own."""
        from holdfast import leases

        name = arguments.name("session_id", session_id)
        return run_inline(leases.acquire(self._services, leases.SyncLease, name, seconds, wait, holder))

    def events(
        self,
        session_id: str | None = None,
        agent_id: str | None = None,
        after: str | None = None,
        *,
        follow: bool = True,
        poll_seconds: float = 1.0,
    ) -> SyncEventStream:
        """`for event in client.events():` blocks until there is one."""
        from holdfast.eventstreams import SyncEventStream

        return SyncEventStream(
            self._client.events(session_id, agent_id, after, follow=follow, poll_seconds=poll_seconds)
        )

    def cursor(self) -> str:
        return run_inline(self._client.cursor())

    def pin(self, checkpoint_id: str, note: str | None = None) -> Pin:
        return run_inline(self._client.pin(checkpoint_id, note))

    def unpin(self, checkpoint_id: str) -> bool:
        return run_inline(self._client.unpin(checkpoint_id))

    def pins(self, session_id: str | None = None) -> list[Pin]:
        return run_inline(self._client.pins(session_id))

    def tag(self, name: str, checkpoint_id: str, *, force: bool = False) -> Tag:
        return run_inline(self._client.tag(name, checkpoint_id, force=force))

    def untag(self, name: str) -> bool:
        return run_inline(self._client.untag(name))

    def tagged(self, name: str) -> Tag | None:
        return run_inline(self._client.tagged(name))

    def tags(self) -> list[Tag]:
        return run_inline(self._client.tags())

    def import_checkpnt(self, path: str | os.PathLike[str], *, dry_run: bool = False) -> ImportedReport:
        return run_inline(self._client.import_checkpnt(path, dry_run=dry_run))

    def import_providerprotocol(
        self, directory: str | os.PathLike[str] = ".checkpoints", *, dry_run: bool = False
    ) -> ImportedReport:
        return run_inline(self._client.import_providerprotocol(directory, dry_run=dry_run))

    def operations(self, session_id: str | None = None, limit: int | None = 50) -> list[Operation]:
        return run_inline(self._client.operations(session_id, limit))

    def undo(
        self,
        op: str | None = None,
        *,
        workspace: str | os.PathLike[str] | Workspace | SyncWorkspace | None = None,
        keep: str | None = None,
        force: bool = False,
        dry_run: bool = False,
        by: str | None = None,
    ) -> UndoReport:
        return run_inline(self._client.undo(op, workspace=workspace, keep=keep, force=force, dry_run=dry_run, by=by))

    def redo(
        self,
        op: str | None = None,
        *,
        workspace: str | os.PathLike[str] | Workspace | SyncWorkspace | None = None,
        keep: str | None = None,
        force: bool = False,
        dry_run: bool = False,
        by: str | None = None,
    ) -> UndoReport:
        return run_inline(self._client.redo(op, workspace=workspace, keep=keep, force=force, dry_run=dry_run, by=by))

    def adopt(self, fork_session_id: str, session_id: str | None = None, *, by: str | None = None) -> AdoptReport:
        return run_inline(self._client.adopt(fork_session_id, session_id, by=by))

    def unexpire(self, checkpoint_id: str) -> bool:
        return run_inline(self._client.unexpire(checkpoint_id))

    def retain(
        self,
        policy: Retention | None = None,
        *,
        keep_last: int | None = None,
        keep_every: int | None = None,
        older_than: timedelta | None = None,
        max_bytes: int | None = None,
        session_id: str | None = None,
        agent_id: str | None = None,
        dry_run: bool = True,
    ) -> RetentionReport:
        return run_inline(
            self._client.retain(
                policy,
                keep_last=keep_last,
                keep_every=keep_every,
                older_than=older_than,
                max_bytes=max_bytes,
                session_id=session_id,
                agent_id=agent_id,
                dry_run=dry_run,
            )
        )

    def freed_by(self, checkpoint_ids: Sequence[str]) -> int:
        return run_inline(self._client.freed_by(checkpoint_ids))

    def du(self, session_id: str | None = None, *, progress: Callable[[int, int], None] | None = None) -> StoreUsage:
        return run_inline(self._client.du(session_id, progress=progress))

    def inbox(self, agent_id: str, *, include_claimed: bool = False) -> list[Handoff]:
        return run_inline(self._client.inbox(agent_id, include_claimed=include_claimed))

    def claim(
        self,
        handoff_id: str,
        agent_id: str,
        *,
        seconds: float = DEFAULT_SECONDS,
        wait: float = 0.0,
        holder: str | None = None,
        claim_id: str | None = None,
    ) -> SyncClaim:
        """`with client.claim(id, "b") as claim:` renews its lease from a thread of its own."""
        from holdfast import claims

        request = claims.request(handoff_id, agent_id, seconds, wait, holder, claim_id)
        return run_inline(claims.sync_claim(self._services, request))

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
    ) -> SyncRun:
        """`with client.run("order-42") as run:` renews its lease from a thread of its own."""
        from holdfast import runopening
        from holdfast.runs import faces

        save = None
        if workspace is not None:
            from holdfast.workspace.workspace import opened

            save = opened(self._services, self._client._workspaces, workspace).save
        options = runopening.options(
            session_id, agent_id, framework, state, context, save, app_version, state_version, autosave,
            on_save_error, policy, approval_wait, approval_seconds,
        )  # fmt: skip
        return run_inline(faces.sync_opened(self._services, options, seconds, wait, holder))

    def effects(self, session_id: str | None = None, *, in_doubt: bool = False) -> list[Effect]:
        return run_inline(self._client.effects(session_id, in_doubt=in_doubt))

    def traces(self, ref: str) -> tuple[SubagentTrace, ...]:
        return run_inline(self._client.traces(ref))

    def resolve_effect(
        self, effect_id: str, outcome: str, *, result: Any = None, by: str, note: str | None = None
    ) -> Effect:
        return run_inline(self._client.resolve_effect(effect_id, outcome, result=result, by=by, note=note))

    def gc(self, *, dry_run: bool = False) -> CollectionReport:
        return run_inline(self._client.gc(dry_run=dry_run))

    def verify(self, session_id: str | None = None) -> VerifyReport:
        return run_inline(self._client.verify(session_id))

    def check_migrations(
        self,
        session_id: str | None = None,
        agent_id: str | None = None,
        *,
        every: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> MigrationReport:
        return run_inline(self._client.check_migrations(session_id, agent_id, every=every, progress=progress))

    def runs(self, *, alive: bool = False) -> list[RunStatus]:
        return run_inline(self._client.runs(alive=alive))

    def overview(self, *, sizes: bool = True) -> Overview:
        return run_inline(self._client.overview(sizes=sizes))

    def stats(self) -> Stats:
        return run_inline(self._client.stats())

    def export(
        self,
        target: Place,
        session_id: str | Sequence[str] | None = None,
        *,
        whole_tree: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> ExportReport:
        return run_inline(self._client.export(target, session_id, whole_tree=whole_tree, progress=progress))

    def import_(
        self,
        source: Place,
        *,
        on_conflict: str = "error",
        dry_run: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> ImportReport:
        return run_inline(self._client.import_(source, on_conflict=on_conflict, dry_run=dry_run, progress=progress))

    def copy_to(
        self, target: Opening, *, on_conflict: str = "error", progress: Callable[[int, int], None] | None = None
    ) -> CopyReport:
        if not isinstance(target, SyncClient):
            raise UsageError(f"a SyncClient copies to a SyncClient, not to a {type(target).__name__}")
        return run_inline(self._client.copy_to(target._client, on_conflict=on_conflict, progress=progress))

    def as_store(self, agent_id: str = "agent") -> SyncClientStore:
        """The plain five-method store, without `await`."""
        from holdfast.store import SyncClientStore

        return SyncClientStore(self._client.as_store(agent_id))

    def close(self) -> None:
        run_inline(self._client.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
