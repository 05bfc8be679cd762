"""The handler of a resumable run: the framework's, for a run that begins when the store is open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from typing import Any

from workflows import Context
from workflows.errors import WorkflowRuntimeError
from workflows.events import Event, InternalDispatchEvent, StopEvent
from workflows.handler import WorkflowHandler

from holdfast.adapters.llama_index.recorder import RunRecorder
from holdfast.errors import UsageError


class ResumableHandler:
    """A run under way: await it for the result, or read its events with `stream_events()`.

    While the stream is read, the reader answers the workflow's questions, by
    `handler.ctx.send_event(...)`. If the handler is only awaited, they wait in `holdfast approvals`,
    and awaiting it raises `ApprovalPendingError`.
    """

    def __init__(self, take: Callable[[ResumableHandler], Awaitable[StopEvent]]) -> None:
        self._begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._recorder: RunRecorder | None = None
        self._native: WorkflowHandler | None = None
        self._is_awaited = False
        self._is_read = False
        self._task: asyncio.Task[StopEvent] = asyncio.ensure_future(take(self))  # type: ignore[arg-type]  # a coroutine
        self._task.add_done_callback(self._end)

    def begin(self, native: WorkflowHandler, recorder: RunRecorder) -> None:
        """Have the run's own handler; until then the store was opened, and the session read."""
        self._native, self._recorder = native, recorder
        recorder.is_awaited = self._is_awaited
        if not self._begun.done():
            self._begun.set_result(None)

    def _end(self, task: asyncio.Task[StopEvent]) -> None:
        if not self._begun.done():
            self._begun.set_result(None)
        if self._recorder is not None:
            self._recorder.events.put_nowait(None)
        if not task.cancelled():
            task.exception()  # it is raised where the handler is awaited

    # -- the framework's own -------------------------------------------------------------------------------------------

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._result().__await__()

    async def _result(self) -> Any:
        stop = await self.stop_event_result()
        return stop.result if type(stop) is StopEvent else stop

    async def stop_event_result(self) -> StopEvent:
        """Return the stop event of the run, which is recorded then."""
        self._is_awaited = True
        if self._recorder is not None:
            self._recorder.is_awaited = True
            self._recorder.ask_people()
        return await asyncio.shield(self._task)

    @property
    def run_id(self) -> str | None:
        return None if self._native is None else self._native.run_id

    @property
    def ctx(self) -> Context[Any]:
        """The context of the run. It is there when the first event has come; `send_event` waits for it."""
        if self._native is None:
            raise UsageError(
                "the run has no context: it has not begun, or was finished before. Read the stream first, or use "
                "`await handler.send_event(...)`"
            )
        return self._native.ctx

    def is_done(self) -> bool:
        return self._task.done()

    def get_stop_event(self) -> StopEvent | None:
        is_finished = self._task.done() and not self._task.cancelled() and self._task.exception() is None
        return self._task.result() if is_finished else None

    async def send_event(self, event: Event, step: str | None = None) -> None:
        """Send an event into the workflow."""
        await self._begun
        self.ctx.send_event(event, step)

    async def cancel_run(self, *, timeout: float = 5.0) -> None:  # noqa: ASYNC109 - the framework's own signature
        """Stop the run. The turn is not finished: the same call continues it."""
        await self._begun
        if self._native is not None:
            await self._native.cancel_run(timeout=timeout)
        await asyncio.wait([self._task], timeout=timeout)

    async def stream_events(self, expose_internal: bool = False) -> AsyncIterator[Event]:
        """Yield the events of the run as they come; of a finished turn, its stop event only.

        The stop event comes when it is recorded. A run that stops otherwise ends the stream.
        """
        if self._is_read:
            raise WorkflowRuntimeError("All the streamed events have already been consumed.")
        await self._begun
        if self._recorder is None:
            self._is_read = True
            stop = self.get_stop_event()
            if stop is not None:
                yield stop
            return
        self._recorder.readers += 1
        try:
            while (event := await self._recorder.events.get()) is not None:
                if isinstance(event, StopEvent):
                    await asyncio.wait([self._task])
                    self._is_read = True
                    yield event
                    return
                if expose_internal or not isinstance(event, InternalDispatchEvent):
                    yield event
            self._is_read = True
        finally:
            self._recorder.readers -= 1
            self._recorder.ask_people()
