"""One run of a workflow, saved step by step.

Each tick of the framework's control loop is reduced here, too. So the work in progress is known at
any moment, without a replay of the run. It is saved when a step has ended, before anything follows
from that; and when an event comes from outside.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from workflows import Context, Workflow
from workflows.context.context_types import SerializedContext
from workflows.context.state_store import InMemoryStateStore, StateCheckpoint
from workflows.events import Event, StartEvent
from workflows.handler import WorkflowHandler
from workflows.runtime.control_loop import rebuild_state_from_ticks
from workflows.runtime.types.internal_state import BrokerState
from workflows.runtime.types.results import AddWaiter, StepWorkerFailed
from workflows.runtime.types.ticks import TickAddEvent, TickIdleCheck, TickSessionStart, TickStepResult, WorkflowTick

from holdfast.adapters.base.known_tools import KnownTools, check_declared
from holdfast.adapters.base.turn import FrameworkTurn, TurnEndedError
from holdfast.adapters.llama_index.dumped_list import DumpedList
from holdfast.adapters.llama_index.people import OpenQuestions, make_response, question_of
from holdfast.adapters.llama_index.step_store import OperationLog
from holdfast.adapters.llama_index.values import (
    MESSAGES,
    DeclaredTypes,
    dump_broker,
    dump_state,
    load_broker,
    load_live_state,
    load_state,
)
from holdfast.errors import HoldfastError
from holdfast.model.approval import ApprovalStatus
from holdfast.model.tool_effect import Effect

_DECIDED = (ApprovalStatus.APPROVED, ApprovalStatus.MODIFIED, ApprovalStatus.REJECTED)
_A_MOMENT = 0.01  # in which an answer that was just sent arrives, and the framework wakes steps that wait


class WorkKey(NamedTuple):
    """What identifies a step under way in every life: the step, its work item, and the attempt."""

    step: str
    work_item: str | None
    attempt: int


@dataclass(slots=True)
class StepRun:
    """One run of a step: its recorded calls, what it did to the state, and the events that it has sent."""

    key: WorkKey
    part: FrameworkTurn
    recorder: RunRecorder
    log: OperationLog = field(default_factory=OperationLog)
    sent: frozenset[int] = frozenset()  # by number: those that were delivered in an earlier life
    questions: list[Event] = field(default_factory=list)  # written to the stream
    is_saved: bool = False  # as a step under way


class RunRecorder:
    """A run that is under way, and the turn that it is saved in."""

    def __init__(
        self,
        turn: FrameworkTurn,
        workflow: Workflow,
        serializer: DeclaredTypes,
        tools: Mapping[str, Effect],
        messages: Sequence[Any] = (),
    ) -> None:
        """`messages` are those of the state, as objects of the program."""
        self.turn = turn
        self.serializer = serializer
        self.events: asyncio.Queue[Event | None] = asyncio.Queue()  # of the stream; None ends it
        self.readers = 0  # of the stream
        self.is_awaited = False
        self.handler: WorkflowHandler | None = None
        self._workflow = workflow
        self._tools = tools
        self._broker = BrokerState.from_workflow(workflow)
        self._store: InMemoryStateStore[Any] | None = None
        self._running: dict[str | None, StepRun] = {}  # by the framework's id of the run of a step
        self._resumed: dict[WorkKey, StepRun] = {}  # steps under way in an earlier life, until they run again
        self._questions = OpenQuestions(turn.state.get("questions"))
        self._loaded = messages
        self._messages = DumpedList(turn.stored_list(MESSAGES), messages)
        self._saved_messages = list(self._messages.dumped)  # as the state has them now
        self._dumped: tuple[StateCheckpoint | None, dict[str, Any]] = (None, {})
        self._asking: asyncio.Task[None] | None = None
        self._decided: set[str] = set()  # questions of an earlier life that people have answered since
        self._is_one_due = False  # whether the saved run has one event to deliver, and nothing else to do

    # -- the beginning -------------------------------------------------------------------------------------------------

    def make_context(self) -> Context[Any]:
        """Return the context to run the workflow with: a resumed one, or one with the last turn's state."""
        saved = self.turn.state
        if "broker" not in saved:
            state = load_live_state(saved, self._loaded, self.serializer) or load_state(saved)
            data: dict[str, Any] = {**SerializedContext().model_dump(mode="python"), "state": state or {}}
        else:
            state = load_state(saved)
            data = {**load_broker(saved["broker"], self._workflow), "state": state or {}}
            logs = {WorkKey(*item["key"]): item["operations"] for item in saved.get("steps", ())}
            for step, worker in saved["broker"].get("workers", {}).items():
                for item in worker.get("in_progress", ()):
                    key = WorkKey(step, item.get("work_item_id"), item.get("attempts", 0))
                    log = OperationLog.load(logs.get(key, ()), state or {}, self.serializer)
                    self._resumed[key] = StepRun(key, self.turn, self, log, frozenset(item.get("received", ())))
        return Context.from_dict(self._workflow, data, serializer=self.serializer)

    def check_name(self, tool: str, function: Any) -> None:
        """Warn if a tool without declaration has nearly the name of a declared one that is not in sight.

        Which tools a workflow has is not known before its steps call them.
        """
        if self._tools and self.turn.find_effect(tool, function) is None:
            seen = getattr(inspect.unwrap(function), "__globals__", {})
            unseen = {
                name: effect
                for name, effect in self._tools.items()
                if name not in seen and not hasattr(self._workflow, name)
            }
            check_declared(unseen, KnownTools({tool}, is_complete=False))

    def attach(self, broker: BrokerState, store: InMemoryStateStore[Any]) -> None:
        """Begin with the run's own work and state."""
        self._broker, self._store = broker, store

    # -- steps ---------------------------------------------------------------------------------------------------------

    def begin_step(self, step: str, work_item: str | None, attempt: int, id_: str | None) -> StepRun:
        key = WorkKey(step, work_item, attempt)
        begun = self._resumed.pop(key, None) or StepRun(key, self.turn, self)
        begun.part = self.turn.open_part(f"{step}:{work_item}:{attempt}")
        self._running[id_] = begun
        return begun

    async def prepare_call(self, step: StepRun, *, is_tool: bool = False) -> None:
        """Have the step saved as under way together with its first recorded call.

        Its work item has the same number then in the next life, and finds the call. That of a step
        that runs alone has the same number anyway: the saved run delivers its event, and no other. The
        start of a turn that begins with a tool is saved before the call: an effect belongs to a turn.
        """
        if not step.is_saved and not (self._is_one_due and _count_work(self._broker) == 1):
            self._put(self._dump(is_step_ended=False))
            self._is_one_due = False
        if is_tool and not self.turn.is_start_saved:
            await self.turn.save_state("run started", {})

    async def on_tick(self, tick: WorkflowTick, run_id: str) -> None:
        """Follow the run, and save it if a step has ended or an event came from outside."""
        self._broker = rebuild_state_from_ticks(self._broker, [tick], run_id=run_id)
        if isinstance(tick, TickStepResult):
            step = self._running.pop(tick.invocation_id, None)
            work_item, written = (None, []) if step is None else (step.key.work_item, step.questions)
            self._questions.note_asked(tick, work_item, written, self.serializer.serialize_value)
            await self._save(f"{tick.step_id} {_outcome_of(tick)}")
        elif isinstance(tick, TickAddEvent) and _is_from_outside(tick):
            self._questions.note_answer(tick.event)
            await self._save(type(tick.event).__name__)

    async def after_tick(self, tick: WorkflowTick) -> None:
        if isinstance(tick, TickSessionStart):
            await self._ask_again()
        if isinstance(tick, TickSessionStart | TickIdleCheck):
            self.ask_people()

    async def _save(self, name: str) -> None:
        """Save the run, unless it has ended: the step that failed runs again, and a result ends the turn."""
        if self._broker.is_running:
            self._put(self._dump(is_step_ended=True))
            self._is_one_due = len(self._broker.deliveries) == _count_work(self._broker) == 1
            await self.turn.save_state(name, {})

    # -- what is saved -------------------------------------------------------------------------------------------------

    def dump_final_state(self) -> tuple[dict[str, Any], dict[str, list[Any]]]:
        """Return what the next turn begins with: a state, and what lists of the turn's state have more."""
        assert self._store is not None
        return self._split_appended(dump_state(self._store.checkpoint().state, self.serializer, self._messages))

    def _put(self, state: Mapping[str, Any]) -> None:
        """Put the run into the turn's state. Messages that only became more are appended to those that it has."""
        rest, appended = self._split_appended(state)
        self._saved_messages = list(state[MESSAGES])
        self.turn.put_state(rest, appended)

    def _split_appended(self, state: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, list[Any]]]:
        added = self._messages.count_since(self._saved_messages) if MESSAGES in self.turn.state else None
        if added is None:
            return dict(state), {}
        messages = state[MESSAGES]
        rest = {name: value for name, value in state.items() if name != MESSAGES}
        return rest, {MESSAGES: messages[len(messages) - added :]}

    def _dump(self, *, is_step_ended: bool) -> dict[str, Any]:
        """Return the run as plain data; end the turn if it has something that can't be saved."""
        try:
            return self._dump_run(is_step_ended)
        except HoldfastError as error:
            self.turn.ended_by = error
            raise TurnEndedError(str(error)) from error

    def _dump_run(self, is_step_ended: bool) -> dict[str, Any]:
        assert self._store is not None
        now = self._store.checkpoint()
        if is_step_ended or self._dumped[0] is None or self._dumped[0].state is not now.state:
            # A step may have changed a value in place, so the state is dumped whenever one has ended.
            self._dumped = (now, dump_state(now.state, self.serializer, self._messages))
        broker = dump_broker(self._broker, self.serializer)
        logs = []
        for entry, id_, key in self._list_under_way(broker):
            step = self._running.get(id_) or self._resumed.get(key)
            if step is None:
                continue
            step.is_saved = True
            if step.sent:
                entry["received"] = sorted({*step.sent, *entry.get("received", ())})
            if step.log.operations:
                logs.append({"key": list(key), "operations": step.log.dump(now)})
        return {"broker": broker, **self._dumped[1], "steps": logs, "questions": self._questions.dump()}

    def _list_under_way(self, broker: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], str | None, WorkKey]]:
        for step, worker in broker["workers"].items():
            for item in worker.get("in_progress", ()):
                yield item, item.get("invocation_id"), WorkKey(step, item.get("work_item_id"), item.get("attempts", 0))

    # -- people --------------------------------------------------------------------------------------------------------

    def ask_people(self) -> None:
        """Answer what was decided; let other questions wait in `holdfast approvals` if no reader answers them.

        Only if all else waits for an answer, and someone waits for the run.
        """
        is_due = bool(self._decided) or (self.is_awaited and not self.readers)
        if is_due and self._is_waiting() and self._asking is None:
            self._asking = asyncio.create_task(self._ask())
            self._asking.add_done_callback(self._forget_asking)

    def _forget_asking(self, _: asyncio.Task[None]) -> None:
        self._asking = None

    def _is_waiting(self) -> bool:
        """Return whether all steps wait, and there is a question that people answer."""
        workers = self._broker.workers.values()
        is_idle = not self._broker.deliveries and not any(worker.queue or worker.in_progress for worker in workers)
        return is_idle and bool(self._questions.list_open())

    async def _ask(self) -> None:
        """Send the workflow people's answers; stop the run while there are none."""
        assert self.handler is not None
        await asyncio.sleep(_A_MOMENT)
        if not self._is_waiting() or (self.readers and not self._decided):
            return
        decided, self._decided = self._decided, set()
        questions = {id_: value for id_, value in self._questions.list_open().items() if id_ in decided or not decided}
        try:
            asked = [(*question_of(value), id_) for id_, value in questions.items()]
            answers = await self.turn.request_approvals(asked)
            for item, answer in zip(questions.values(), answers, strict=True):
                self.handler.ctx.send_event(make_response(item, answer, self._broker))
        except (TurnEndedError, HoldfastError) as error:
            if isinstance(error, HoldfastError):
                self.turn.ended_by = error
            await self.handler.cancel_run()

    async def _ask_again(self) -> None:
        """Publish the open questions of an earlier life, except those that were decided since."""
        open_ones = self._questions.list_open()
        if not open_ones:
            return
        listed = await self.turn.client.approvals(self.turn.session_id, pending=False)
        decided = [(item.call.tool, dict(item.call.arguments)) for item in listed if item.status in _DECIDED]
        for id_, value in open_ones.items():
            if question_of(value) in decided or self.turn.has_answer(value["step"], id_):
                self._decided.add(id_)
            else:
                self.events.put_nowait(self.serializer.deserialize_value(value["event"]))


def _count_work(broker: BrokerState) -> int:
    """Return how many events, steps and waits a run has left."""
    work = [broker.deliveries, broker.streams]
    for worker in broker.workers.values():
        work += [worker.queue, worker.in_progress, worker.collected_waiters]
        work += [worker.collected_events, worker.static_collect_events]
    return sum(map(len, work))


def _is_from_outside(tick: TickAddEvent) -> bool:
    is_own = tick.emission is not None or tick.work_item_id is not None  # sent by a step, or to one that waits
    return not is_own and not isinstance(tick.event, StartEvent)


def _outcome_of(tick: TickStepResult) -> str:
    if any(isinstance(item, StepWorkerFailed) for item in tick.result):
        return "failed"
    return "waits" if any(isinstance(item, AddWaiter) for item in tick.result) else "finished"
