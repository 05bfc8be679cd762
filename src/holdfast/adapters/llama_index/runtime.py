"""The framework's runtime with one addition: runs that have a recorder are saved.

A runtime is the framework's own place for that. It is given to a workflow when that is made;
`record_runs` replaces it later, so that `resumable` takes any workflow.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from workflows import Workflow
from workflows.context.serializers import BaseSerializer
from workflows.context.state_store import StateStore
from workflows.events import Event, InputRequiredEvent, InternalDispatchEvent, StartEvent
from workflows.plugins import BasicRuntime
from workflows.runtime.runtime_decorators import BaseInternalRunAdapterDecorator, BaseRuntimeDecorator
from workflows.runtime.types.internal_state import BrokerState
from workflows.runtime.types.plugin import ExternalRunAdapter, InternalRunAdapter, RegisteredWorkflow
from workflows.runtime.types.results import RetryAttempt, StepWorkerOutput, StepWorkerState
from workflows.runtime.types.step_function import StepWorkerFunction
from workflows.runtime.types.step_id import StepId
from workflows.runtime.types.ticks import TickAddEvent, WorkflowTick

from holdfast.adapters.llama_index.recorder import RunRecorder, StepRun
from holdfast.adapters.llama_index.step_store import StepStateStore
from holdfast.errors import UsageError

current_step: ContextVar[StepRun | None] = ContextVar("holdfast_step", default=None)
"""The step that runs, for `call_model` and `call_tool`; also in workflows that it runs itself."""
_NOWHERE = StepId.root("already sent")


class RecordedRuntime(BaseRuntimeDecorator):
    """A runtime whose runs are saved if they have a recorder; others are left as they are."""

    def __init__(self, decorated: Any) -> None:
        super().__init__(decorated)
        self._recorders: dict[str, RunRecorder] = {}

    def record(self, run_id: str, recorder: RunRecorder) -> None:
        self._recorders[run_id] = recorder

    def forget(self, run_id: str) -> None:
        self._recorders.pop(run_id, None)

    def register(self, workflow: Workflow) -> RegisteredWorkflow:
        registered = self._decorated.register(workflow)
        return replace(registered, steps={name: self._record_step(value) for name, value in registered.steps.items()})

    def run_workflow(
        self,
        run_id: str,
        workflow: Workflow,
        init_state: BrokerState,
        start_event: StartEvent | None = None,
        serialized_state: dict[str, Any] | None = None,
        serializer: BaseSerializer | None = None,
    ) -> ExternalRunAdapter:
        begun = super().run_workflow(run_id, workflow, init_state, start_event, serialized_state, serializer)
        if run_id in self._recorders:  # the run itself begins in a task, later
            self._recorders[run_id].attach(init_state, begun.get_state_store(()))
        return begun

    def get_internal_adapter(self, workflow: Workflow) -> InternalRunAdapter:
        adapter = self._decorated.get_internal_adapter(workflow)
        recorder = self._recorders.get(adapter.run_id)
        return adapter if recorder is None else RecordedRunAdapter(adapter, recorder)

    def _record_step(self, function: StepWorkerFunction) -> StepWorkerFunction:
        call: Callable[..., Awaitable[list[StepWorkerOutput]]] = function

        async def run_step(
            state: StepWorkerState,
            step_name: str,
            event: Event,
            workflow: Workflow,
            bound_events: dict[str, Event] | None = None,
            retry: RetryAttempt = RetryAttempt(),  # noqa: B008 - the framework's own signature
        ) -> list[StepWorkerOutput]:
            recorder = self._recorders.get(self._decorated.get_internal_adapter(workflow).run_id)
            if recorder is None:
                return await call(state, step_name, event, workflow, bound_events, retry)
            step = recorder.begin_step(step_name, state.work_item_id, retry.retry_number, state.invocation_id)
            token = current_step.set(step)
            try:
                return await call(state, step_name, event, workflow, bound_events, retry)
            finally:
                current_step.reset(token)

        return run_step


class RecordedRunAdapter(BaseInternalRunAdapterDecorator):
    """What the control loop, or one step, reaches its run by."""

    def __init__(self, decorated: InternalRunAdapter, recorder: RunRecorder) -> None:
        super().__init__(decorated)
        self._recorder = recorder
        step = current_step.get()
        self._step = step if step is not None and step.recorder is recorder else None

    async def on_tick(self, tick: WorkflowTick) -> None:
        await super().on_tick(tick)
        await self._recorder.on_tick(tick, self.run_id)

    async def after_tick(self, tick: WorkflowTick) -> None:
        await super().after_tick(tick)
        await self._recorder.after_tick(tick)

    async def write_to_event_stream(self, event: Event) -> None:
        if self._step is not None and isinstance(event, InputRequiredEvent):
            self._step.questions.append(event)
        self._recorder.events.put_nowait(event)
        await super().write_to_event_stream(event)

    async def send_event(self, tick: WorkflowTick) -> None:
        """Send an event of a step, unless it was delivered in an earlier life: then only its number is taken.

        The framework sends the events of a step that runs again a second time.
        """
        emission = tick.emission if isinstance(tick, TickAddEvent) else None
        if self._step is not None and emission is not None and emission.index in self._step.sent:
            tick = tick.model_copy(update={"event": InternalDispatchEvent(), "step_id": _NOWHERE})
        await super().send_event(tick)

    def get_state_store(self, namespace: tuple[str, ...] = ()) -> StateStore[Any] | None:
        store: Any = super().get_state_store(namespace)
        return store if self._step is None or store is None else StepStateStore(store, self._step.log)


def record_runs(workflow: Workflow) -> RecordedRuntime:
    """Return the workflow's runtime that records; put it around the one it has."""
    runtime = workflow.runtime
    if isinstance(runtime, RecordedRuntime):
        return runtime
    innermost = runtime
    while isinstance(innermost, BaseRuntimeDecorator):
        innermost = innermost._decorated  # the framework's decorators have it for their subclasses
    if not isinstance(innermost, BasicRuntime):
        raise UsageError(
            f"the workflow has a {type(innermost).__name__}, which saves runs itself: resumable() takes a workflow "
            "with the framework's default runtime"
        )
    recorded = RecordedRuntime(runtime)
    # Private: the public way is an argument of the workflow's constructor, and this one is made already.
    workflow._runtime = recorded
    recorded.track_workflow(workflow)
    return recorded
