"""A workflow whose turns continue after a crash.

The framework makes a checkpoint after each superstep; it is saved with the turn. A superstep that was
cut off runs again, with the recorded model and tool calls of its agents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from agent_framework import ResponseStream, Workflow, WorkflowCheckpoint, WorkflowEvent, WorkflowRunResult

from holdfast.adapters.agent_framework.middleware import TurnRecording, agents_of, attach_all, find_tools
from holdfast.adapters.agent_framework.people import answer_requests
from holdfast.adapters.agent_framework.values import dump_checkpoint, dump_value, load_checkpoint, load_value
from holdfast.adapters.base.event_stream import Emit, stream_turn
from holdfast.adapters.base.session import ResumableSession, TurnEnd
from holdfast.adapters.base.shared_target import FirstStates, hold
from holdfast.adapters.base.turn import FrameworkTurn
from holdfast.errors import UsageError
from holdfast.model.framework import Framework

ENTRY = "run"
_first: FirstStates[dict[str, Any]] = FirstStates()  # the checkpoints of workflows before their first turn
_OUTPUTS = ("output", "intermediate")
_RECORDED = (*_OUTPUTS, "status")  # kinds of events that a finished turn returns


class ResumableWorkflow:
    """A workflow and its state in a store. `run` is the workflow's own.

    A call with a message is a turn. `turn` identifies it, for example by the id of the message that
    it answers. Questions (`request_info`) wait in `holdfast approvals`.
    """

    def __init__(self, workflow: Workflow, *, session_id: str, agent_id: str | None = None, **options: Any) -> None:
        self.workflow = workflow
        self._session = ResumableSession(
            Framework.AGENT_FRAMEWORK,
            session_id=session_id,
            agent_id=agent_id or workflow.name or workflow.id,
            **options,
        )

    def run(self, message: Any, *, stream: bool = False, turn: str | None = None, **options: Any) -> Any:
        """Run a turn, or continue it; a finished one returns its recorded outputs.

        Returns an awaitable `WorkflowRunResult`, or with `stream=True` a `ResponseStream` of events.
        """
        refused = next((name for name in ("responses", "checkpoint_id", "checkpoint_storage") if name in options), None)
        if refused is not None:
            raise UsageError(
                f"{refused}= can't be given: the store has the checkpoints of a resumable workflow, and `holdfast "
                "approve` answers its questions. Leave it out"
            )
        if not stream:
            return self._run(message, turn, options)
        found: list[WorkflowRunResult] = []

        async def take(emit: Emit) -> None:
            found.append(await self._take(message, turn, options, emit))

        return ResponseStream(stream_turn(take), finalizer=lambda _: found[0])

    async def _run(self, message: Any, turn: str | None, options: Mapping[str, Any]) -> WorkflowRunResult:
        return await self._take(message, turn, options, None)

    async def _take(
        self, message: Any, turn: str | None, options: Mapping[str, Any], emit: Callable[[Any], None] | None
    ) -> WorkflowRunResult:
        attach_all(self.workflow)
        self._session.check_tools(lambda: find_tools(agents_of(self.workflow)))
        is_streamed = False

        async def body(turn_: FrameworkTurn) -> TurnEnd:
            nonlocal is_streamed
            is_streamed = True
            storage = TurnStorage(turn_)
            before = [_load_event(output) for output in storage.outputs]
            if emit is not None:
                for event in before:
                    emit(event)
            # Private: a workflow shows neither its superstep nor its checkpoint after a run without an error.
            recording = TurnRecording(turn_, place=lambda: self.workflow._runner._iteration)
            with recording.current(), storage.collect_output(self.workflow):
                last = await self._follow(message, storage, options, emit)
                events = [*before, *last]
                while requests := [event for event in last if event.type == "request_info"]:
                    responses = await answer_requests(recording, requests)
                    storage.outputs.clear()
                    last = await self._consume({**options, "responses": responses, "checkpoint_storage": storage}, emit)
                    events = last
            final = await self.workflow._runner.build_checkpoint()
            recorded = [_dump_event(event) for event in events if event.type in _RECORDED]
            return TurnEnd(_result_of(events), {"events": recorded}, {"checkpoint": dump_checkpoint(final)})

        def load(recorded: Mapping[str, Any]) -> WorkflowRunResult:
            return _result_of([_load_event(item) for item in recorded["events"]])

        with hold([self.workflow], "workflow"):
            result: WorkflowRunResult = await self._session.take_turn(ENTRY, dump_value(message), turn, body, load)
        if emit is not None and not is_streamed:
            for event in result:  # of a recorded result
                emit(event)
        return result

    async def _follow(
        self, message: Any, storage: TurnStorage, options: Mapping[str, Any], emit: Callable[[Any], None] | None
    ) -> list[Any]:
        """Run the workflow from the superstep that was cut off, or begin the turn."""
        state, runner = storage.turn.state, self.workflow._runner
        first = _first.find(self.workflow)
        if first is None:
            now = dump_checkpoint(await runner.build_checkpoint())
            first = _first.take(self.workflow, lambda: now)
        # Whatever became of the workflow since the last turn, it begins where the store says.
        await runner.restore_checkpoint(load_checkpoint(first))
        if state.get("of") == storage.turn.key:
            known = {"checkpoint_id": state["checkpoint"]["checkpoint_id"], "checkpoint_storage": storage}
            return await self._consume({**options, **known}, emit)
        if "checkpoint" in state:
            await runner.restore_checkpoint(load_checkpoint(state["checkpoint"]))
        return await self._consume({**options, "message": message, "checkpoint_storage": storage}, emit)

    async def _consume(self, options: Mapping[str, Any], emit: Callable[[Any], None] | None) -> list[Any]:
        """Run the workflow until it ends, or waits for people; return its events."""
        if emit is None:
            result = await self.workflow.run(**options)
            return [*result, *result.status_timeline()]
        events = []
        async for event in self.workflow.run(stream=True, **options):
            events.append(event)
            emit(event)
        return events


class TurnStorage:
    """A checkpoint storage of the framework that saves into the turn that is under way.

    A checkpoint does not have what the workflow has put out so far, so `outputs` is saved with it:
    a superstep that is finished does not put it out again. After an answer of a person they begin
    again, as those of the framework's own `run(responses=...)` do.
    """

    def __init__(self, turn: FrameworkTurn) -> None:
        self.turn = turn
        is_cut_off = turn.state.get("of") == turn.key and not turn.state["checkpoint"]["pending_request_info_events"]
        self.outputs: list[Any] = turn.state.get("outputs", []) if is_cut_off else []

    @contextmanager
    def collect_output(self, workflow: Workflow) -> Iterator[None]:
        """Collect what the workflow puts out. No entry point of it tells that before its run is over."""
        context = workflow._runner.context
        add = context.add_event

        async def add_event(event: Any) -> None:
            if event.type in _OUTPUTS:
                self.outputs.append(_dump_event(event))
            await add(event)

        context.add_event = add_event
        try:
            yield
        finally:
            del context.add_event

    async def save(self, checkpoint: WorkflowCheckpoint) -> str:
        state = {"checkpoint": dump_checkpoint(checkpoint), "outputs": list(self.outputs), "of": self.turn.key}
        await self.turn.save_state(f"superstep {checkpoint.iteration_count}", state)
        return str(checkpoint.checkpoint_id)

    async def load(self, checkpoint_id: str) -> WorkflowCheckpoint:
        return load_checkpoint(self.turn.state["checkpoint"])


def _result_of(events: list[Any]) -> WorkflowRunResult:
    status = [event for event in events if event.type == "status"]
    return WorkflowRunResult([event for event in events if event.type != "status"], status)


def _dump_event(event: Any) -> dict[str, Any]:
    if event.type == "status":
        return {"type": event.type, "state": str(event.state.value)}
    return {"type": event.type, "data": dump_value(event.data), "executor_id": event.executor_id}


def _load_event(recorded: Mapping[str, Any]) -> Any:
    from agent_framework import WorkflowRunState

    if recorded["type"] == "status":
        return WorkflowEvent("status", state=WorkflowRunState(recorded["state"]))
    return WorkflowEvent(recorded["type"], data=load_value(recorded["data"]), executor_id=recorded["executor_id"])
