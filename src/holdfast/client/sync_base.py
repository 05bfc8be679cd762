"""The hand-written base of the sync client; the rest is generated."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from holdfast.backends.bridge.step import run_inline
from holdfast.client.client import Client
from holdfast.client.factory import DEFAULT_CACHE_BYTES, ClientBase
from holdfast.errors import UsageError

if TYPE_CHECKING:
    import threading

    from holdfast.backends.bridge.base import Bridge
    from holdfast.backends.port import AnyBackend, AsyncBackend, BlockingBackend
    from holdfast.client.resume_plan import SyncResumePlan
    from holdfast.client.sync import SyncClient
    from holdfast.codec.limits import Limits
    from holdfast.codec.redaction_rules import Redact
    from holdfast.codec.registry import TypeRegistry
    from holdfast.codec.unknown_types import OnUnknownType
    from holdfast.model.framework import Framework
    from holdfast.model.state_migration import Migrations
    from holdfast.operations.context import StoreContext
    from holdfast.runs.api import Run, SyncRun
    from holdfast.sealing.key_ring import KeyRing
    from holdfast.workspace.sync import SyncWorkspace


class InlineClient(Client):
    """A client whose coroutines never suspend."""

    _is_plain = True
    _tidying_thread: threading.Thread | None = None

    def _bridge(self, backend: AnyBackend) -> Bridge:
        from holdfast.backends.bridge.inline import InlineBridge

        if backend.capabilities.awaitable:
            from holdfast.backends.bridge.blocking import blocking

            return InlineBridge(blocking(cast("AsyncBackend", backend)))
        return InlineBridge(cast("BlockingBackend", backend))

    def _tidy(self) -> None:
        from holdfast.client import background_gc

        if self._tidying_thread is None or not self._tidying_thread.is_alive():
            self._tidying_thread = background_gc.start_thread(self._ctx, cast("Bridge", self._ctx.backend))

    def _caller_of_functions(self) -> Any:
        from holdfast.runs import api

        return api._call_plainly

    def _peer(self, target: ClientBase) -> Client:
        if not isinstance(target, SyncBase):
            raise UsageError(f"a SyncClient copies to a SyncClient, not to a {type(target).__name__}")
        return target._client


class SyncBase(ClientBase):
    """The base of the generated methods of `SyncClient`."""

    def __init__(
        self,
        backend: AnyBackend,
        *,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        types: TypeRegistry | None = None,
        limits: Limits | None = None,
        migrations: Migrations | None = None,
        on_unknown_type: OnUnknownType = "raise",
        redact: Redact = (),
        keys: KeyRing | None = None,
        require_keys: bool = False,
    ) -> None:
        self._client: InlineClient = InlineClient(
            backend, cache_bytes=cache_bytes, types=types, limits=limits, migrations=migrations,
            on_unknown_type=on_unknown_type, redact=redact, keys=keys, require_keys=require_keys,
        )  # fmt: skip
        self._ctx = self._client._ctx

    @classmethod
    def _open_over(cls, ctx: StoreContext) -> Self:
        made = super()._open_over(ctx)
        made._client = InlineClient._open_over(ctx)
        return made

    def workspace(self, path: str | os.PathLike[str], **options: Any) -> SyncWorkspace:
        """Opens the directory that an agent works in, for snapshots of its files.

        Give it to `save(..., workspace=workspace)`. `Workspace` documents the options.
        """
        from holdfast.workspace.sync import SyncWorkspace

        return SyncWorkspace(path, cast("SyncClient", self), **options)

    def resume_as(
        self,
        ref: str,
        framework: Framework | str,
        *,
        tools: Any = None,
        dangling: str = "ledger",
        accept: Sequence[str] = (),
        carry: Mapping[str, str] | None = None,
        at: str | None = None,
        approvals: str = "reask",
        while_running: bool = False,
        run: Run | SyncRun | None = None,
    ) -> SyncResumePlan:
        from holdfast.client.resume_plan import SyncResumePlan
        from holdfast.runs.api import Run

        if isinstance(run, Run):
            raise UsageError(
                "run belongs to a Client with await, and this is a SyncClient: open the run with the same client, "
                "`with client.run(session_id) as run`"
            )
        planned = self._client._plan_move(
            ref, framework, tools=tools, dangling=dangling, accept=accept, carry=carry, at=at, approvals=approvals,
            while_running=while_running, run=run,
        )  # fmt: skip
        return SyncResumePlan(self, run_inline(planned))

    resume_as.__doc__ = Client.resume_as.__doc__

    def close(self) -> None:
        """Releases the store. All acknowledged saves are durable already."""
        run_inline(self._client.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
