"""`resumable(workflow, ...)`: a workflow of LlamaIndex whose runs continue after a crash."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from workflows import Context, Workflow
from workflows.errors import WorkflowRuntimeError
from workflows.events import StartEvent, StopEvent

from holdfast.adapters.base.install import warn_if_untested
from holdfast.adapters.base.loaded_list import LoadedList
from holdfast.adapters.base.session import ResumableSession, TurnEnd
from holdfast.adapters.base.turn import FrameworkTurn
from holdfast.adapters.llama_index.handler import ResumableHandler
from holdfast.adapters.llama_index.recorder import RunRecorder
from holdfast.adapters.llama_index.runtime import record_runs
from holdfast.adapters.llama_index.values import MESSAGES, DeclaredTypes, dump_fields, dump_stop, load_stop
from holdfast.errors import UsageError
from holdfast.model.framework import Framework
from holdfast.model.tool_effect import Effect, declared_effects

warn_if_untested("llama-index-workflows", "2.26", "3")

ENTRY = "run"


def resumable(
    target: Workflow,
    *,
    session_id: str,
    store: Any = None,
    agent_id: str | None = None,
    workspace: str | os.PathLike[str] | None = None,
    tools: Mapping[str, Effect | str] | None = None,
) -> ResumableLlamaWorkflow:
    """Return the workflow with a `run` that continues after a crash.

    `store` is a `Client`, a URL, or None for `.holdfast/store.db`. `tools` declares what the tools do
    that steps call by `call_tool`, by their names.
    """
    return ResumableLlamaWorkflow(
        target, session_id=session_id, store=store, agent_id=agent_id, workspace=workspace, tools=tools
    )


class ResumableLlamaWorkflow:
    """A workflow and its state in a store. `run` is the workflow's own.

    A call is a turn. `turn` identifies it, for example by the id of the message that it answers. The
    state (`ctx.store`) stays from turn to turn.
    """

    def __init__(
        self,
        workflow: Workflow,
        *,
        session_id: str,
        agent_id: str | None = None,
        tools: Mapping[str, Effect | str] | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(workflow, Workflow):
            raise UsageError(f"resumable() takes a Workflow of LlamaIndex, not a {type(workflow).__name__}")
        self.workflow = workflow
        self._serializer = DeclaredTypes.of(workflow)
        self._messages = LoadedList(lambda trees: [self._serializer.deserialize_value(tree) for tree in trees])
        self._runtime = record_runs(workflow)
        self._tools = declared_effects(tools)
        self._session = ResumableSession(
            Framework.LLAMA_INDEX,
            session_id=session_id,
            agent_id=agent_id or type(workflow).__name__,
            tools=tools,
            **options,
        )

    def run(
        self, ctx: None = None, start_event: StartEvent | None = None, *, turn: str | None = None, **kwargs: Any
    ) -> ResumableHandler:
        """Run a turn, or continue it; a finished one has its recorded result.

        The arguments are those of the start event. Returns a handler to await or to stream events
        from, as the workflow's own `run` does.
        """
        if ctx is not None:
            raise UsageError("ctx= can't be given: the store has the context of a resumable workflow. Leave it out")
        run_id = kwargs.pop("run_id", None) or uuid.uuid4().hex
        try:
            event = self.workflow.start_event_class(**kwargs) if start_event is None else start_event
        except ValidationError as error:
            kind = self.workflow.start_event_class.__name__
            raise WorkflowRuntimeError(f"Failed creating a start event of type {kind!r}: {error}") from error
        return ResumableHandler(lambda handler: self._take(handler, event, turn, run_id))

    async def _take(self, handler: ResumableHandler, event: StartEvent, turn: str | None, run_id: str) -> StopEvent:
        given = dump_fields(event)
        async with self._session.open_turn(ENTRY, given, turn, saves_start=False) as opened:
            if opened.turn is None:
                with self._session.guard_state():
                    return load_stop(opened.recorded["stop"], self._serializer, opened.texts)
            with self._session.guard_state():
                _refuse_extracted(opened.turn.state, self._session.session_id)
                messages = opened.turn.load_list(MESSAGES, self._messages) if _has_values(opened.turn.state) else ()
                recorder = RunRecorder(opened.turn, self.workflow, self._serializer, self._tools, messages)
                context = recorder.make_context()
            stop = await self._run(handler, recorder, opened.turn, event, run_id, context)
            state, appended = recorder.dump_final_state()
            recorded = {"stop": dump_stop(stop, self._serializer, opened.texts)}
            if not state.get(MESSAGES) and not appended.get(MESSAGES):  # else the conversation has the input
                recorded["input"] = given
            opened.end = TurnEnd(stop, recorded, state, appended)
        return stop

    async def _run(
        self,
        handler: ResumableHandler,
        recorder: RunRecorder,
        turn: FrameworkTurn,
        event: StartEvent,
        run_id: str,
        context: Context[Any],
    ) -> StopEvent:
        """Run the workflow to its end; leave nothing of it running."""
        self._runtime.record(run_id, recorder)
        native = self.workflow.run(ctx=context, start_event=event, run_id=run_id)
        recorder.handler = native
        handler.begin(native, recorder)
        try:
            return await asyncio.shield(native.stop_event_result())
        finally:
            if not native.is_done():
                await native.cancel_run()
            self._runtime.forget(run_id)


def _has_values(state: Mapping[str, Any]) -> bool:
    """Return whether the state is a dictionary of values: messages of another class are loaded by that."""
    return "qualified_name" not in state.get("state", {})


def _refuse_extracted(state: Mapping[str, Any], session_id: str) -> None:
    if "context" in state:
        raise UsageError(
            f"session {session_id!r:.60} was saved by extract() while its workflow ran: `reconstruct` makes the "
            "context that continues it. Give resumable() a session of its own"
        )
