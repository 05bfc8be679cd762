"""The part of the client for named runs: start them, carry them out, retry them."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from holdfast.client.factory import ClientBase
from holdfast.errors import UsageError
from holdfast.model.lease import DEFAULT_SECONDS
from holdfast.operations import validate

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from datetime import datetime

    from holdfast.runs.runnable import Runnables


class ClientWork(ClientBase):
    """The part of `Client` that starts runs by name, and carries them out."""

    async def start(
        self,
        name: str,
        /,
        *args: Any,
        session_id: str | None = None,
        at: datetime | None = None,
        agent_id: str | None = None,
        version: str | int | None = None,
        **kwargs: Any,
    ) -> str:
        """Records a run of a named function, which a worker carries out, and returns its session.

        The arguments must be storable values; those of a function with a contract are checked by
        it. The same `session_id` with the same arguments is a no-op, with others a `ConflictError`.
        The run begins not before `at`. The function need not be known in this process: then
        `version` says which one is meant, and any worker's version is left out.
        """
        from holdfast.operations import start as starting
        from holdfast.runs import runnable, sleep

        function = validate.name("name", name)
        known = runnable.DECLARED.newest(function)
        arguments = await runnable.encode_arguments(self._ctx, known, args, kwargs)
        session = validate.name("session_id", session_id) if session_id is not None else runnable.new_session(self._ctx)
        of_version = known.version if known is not None else ""
        if version is not None:
            of_version = runnable.version_text("version", version)
        agent = agent_id if agent_id is not None else known.agent_id if known is not None else "agent"
        await starting.start(
            self._ctx,
            session,
            agent_id=validate.name("agent_id", agent),
            function=function,
            version=of_version,
            arguments=arguments,
            at_us=None if at is None else sleep.moment_us("at", at),
            is_new=session_id is None,
        )
        return session

    async def retry(self, session_id: str) -> None:
        """Makes a run due now that failed or waits, with all its attempts. A worker carries it out."""
        from holdfast.operations import start as starting

        await starting.retry(self._ctx, validate.name("session_id", session_id))

    async def work(
        self,
        *,
        concurrency: int = 8,
        drain: bool = False,
        stop: threading.Event | None = None,
        runnables: Runnables | None = None,
        lease_seconds: float = DEFAULT_SECONDS,
        holder: str | None = None,
        notify: Callable[[str, str, str], None] | None = None,
        notify_progress: Callable[[str, float, float | None, str | None], None] | None = None,
    ) -> int:
        """Carries out due runs of the functions that `runnable` has named, up to `concurrency` at a time.

        Due are runs that were started, interrupted or handed back, whose time or retry has come, or
        whose approval or effect was decided. A run stays with workers that know its function and
        version.

        The worker ends once `stop` is set, which any thread or signal handler may do; with `drain`,
        once no run is due; when its task is cancelled; or by Ctrl-C without an event loop. Each run
        finishes the step at work, and is handed back. A cancellation after that does not wait for
        the steps. No signal handlers are changed: `holdfast work` handles SIGTERM.

        Returns how many lives of runs it has carried out. `notify` is called with function, session
        and what happened, `notify_progress` with session, done, total and note; both may be called
        from a thread.
        """
        from holdfast.coordination import process
        from holdfast.runs import runnable, worker_loop
        from holdfast.runs.worker import WorkerOptions

        if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
            raise UsageError(f"concurrency is {concurrency!r:.60}: it must be a whole number from 1 on")
        chosen = runnable.DECLARED if runnables is None else runnables
        if not isinstance(chosen, runnable.Runnables):
            raise UsageError(f"runnables is {chosen!r:.60}: it must be a Runnables")
        waits = getattr(stop, "wait", None)
        if stop is not None and (not callable(waits) or inspect.iscoroutinefunction(waits)):
            raise UsageError(f"stop is {stop!r:.60}: it must be a threading.Event")
        if not chosen.names():
            raise UsageError("no function is named: decorate one with @holdfast.runnable(name), and import its module")
        options = WorkerOptions(
            runnables=chosen,
            concurrency=concurrency,
            drain=drain,
            lease_seconds=validate.seconds("lease_seconds", lease_seconds, least=0.2),
            holder=process.default_holder() if holder is None else validate.name("holder", holder),
            notify=notify,
            notify_progress=notify_progress,
        )
        if self._is_plain:
            return worker_loop.work_without_loop(self._ctx, options, stop)
        return await worker_loop.work(self._ctx, options, stop)
