"""`resumable(agent, ...)`: an agent of smolagents whose turns continue after a crash."""

from __future__ import annotations

import operator
import os
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from smolagents.agent_types import handle_agent_output_types
from smolagents.agents import MultiStepAgent, RunResult, ToolOutput
from smolagents.memory import ActionStep, FinalAnswerStep, PlanningStep, TaskStep
from smolagents.monitoring import Timing, TokenUsage
from smolagents.utils import AgentMaxStepsError

from holdfast.adapters.base.install import warn_if_untested
from holdfast.adapters.base.session import ResumableSession, TurnEnd
from holdfast.adapters.base.turn import FrameworkTurn
from holdfast.adapters.smolagents.journal import SmolJournal, find_tools, hold_team
from holdfast.adapters.smolagents.steps import AgentStartState, KnownSteps, drop_requests, dump_variables, load_step
from holdfast.adapters.smolagents.values import ValueIdentity, dump_value, is_lost, load_value, warn_of_lost
from holdfast.errors import UsageError
from holdfast.model.framework import Framework
from holdfast.model.tool_effect import Effect

warn_if_untested("smolagents", "1.26", "2")

ENTRY = "run"


def resumable(
    target: MultiStepAgent,
    *,
    session_id: str,
    store: Any = None,
    agent_id: str | None = None,
    workspace: str | os.PathLike[str] | None = None,
    tools: Mapping[str, Effect | str] | None = None,
) -> ResumableSmolAgent:
    """Return the agent with `run`, which continues after a crash.

    `store` is a `SyncClient`, a URL, or None for `.holdfast/store.db`. `tools` declares what tools do,
    by their names.
    """
    if not isinstance(target, MultiStepAgent):
        raise UsageError(
            f"resumable() takes an agent of smolagents, such as a ToolCallingAgent, not a {type(target).__name__}"
        )
    session = ResumableSession(
        Framework.SMOLAGENTS,
        session_id=session_id,
        store=store,
        agent_id=agent_id or target.name,
        workspace=workspace,
        tools=tools,
        is_async=False,
    )
    return ResumableSmolAgent(target, session)


class ResumableSmolAgent:
    """An agent and its runs in a store. Options of `run` are the agent's.

    `turn` identifies a run. Without it, a run is known by its task, and by how many runs with this
    task this process has finished.
    """

    def __init__(self, agent: MultiStepAgent, session: ResumableSession) -> None:
        self.agent = agent
        self._session = session
        self._start = AgentStartState.of(agent)
        self._known = KnownSteps()
        self._observed: dict[str, str] = {}  # in this turn, by tool call
        self._head: str | None = None  # the checkpoint that memory and interpreter of the agent are as of

    def run(
        self,
        task: str,
        stream: bool = False,
        reset: bool = True,
        images: Sequence[Any] | None = None,
        additional_args: dict[str, Any] | None = None,
        max_steps: int | None = None,
        return_full_result: bool | None = None,
        *,
        turn: str | None = None,
    ) -> Any:
        """Run the task, or continue; a finished run returns its recorded result.

        With `stream`, the events are yielded as smolagents yields them; those of a finished run are its
        steps and the answer.
        """
        self._session.check_tools(lambda: find_tools(self.agent))
        options = {"images": images and list(images), "additional_args": additional_args, "max_steps": max_steps}
        events = self._take_turn(task, options, turn, reset=reset)
        if stream:
            return _without_result(events)
        full = self.agent.return_full_result if return_full_result is None else return_full_result
        while True:
            try:
                next(events)
            except StopIteration as stop:
                output, timing = stop.value
                return _make_result(output, self.agent.memory.steps, timing) if full else output

    def _take_turn(
        self, task: str, options: dict[str, Any], turn: str | None, *, reset: bool
    ) -> Generator[Any, None, tuple[Any, Timing]]:
        """Yield the events of a turn; return its answer, and how long it took. The memory has its steps."""
        with hold_team(self.agent), self._session.open_turn_sync(ENTRY, _identify(task, options), turn) as opened:
            if opened.turn is None:
                with self._session.guard_state():
                    steps = self._load_steps(opened.recorded)
                    own = opened.recorded["own"] - opened.recorded["first"]
                    output = handle_agent_output_types(load_value(opened.recorded["output"]))
                    started, ended = opened.recorded["timing"]
                yield from (step for step in steps[own:] if not isinstance(step, TaskStep))
                self.agent.memory.steps, self._head = steps, None
            else:
                started = time.time()
                output = yield from self._run(opened.turn, task, options, reset=reset)
                ended = time.time()
                opened.end = self._end(opened.turn, output, [started, ended], reset=reset)
        if opened.end is not None:
            self._head = self._session.head
            self._known.note_dumped()
        yield FinalAnswerStep(output)  # after it is recorded
        return output, Timing(start_time=started, end_time=ended)

    def _run(
        self, turn: FrameworkTurn, task: str, options: dict[str, Any], *, reset: bool
    ) -> Generator[Any, None, Any]:
        """Run the agent, and record its calls; yield its events, return its answer."""
        drop_requests(self.agent.memory.steps)
        if self._head is None or self._head != turn.begun_after or not self._known.match(self.agent.memory.steps):
            with self._session.guard_state():
                self._start.restore(self.agent, turn.state)
            self._known.note(self.agent.memory.steps if "messages" in turn.state else [])
        self._head = None  # the agent is in the middle of a turn
        self._observed.clear()
        journal = SmolJournal(turn)
        with journal.recording(self.agent, self._session.agent_id):
            events = self.agent.run(task, stream=True, reset=reset, **options)
            try:
                for event in events:
                    if isinstance(event, ToolOutput):
                        self._observed[event.id] = event.observation
                    if isinstance(event, FinalAnswerStep):
                        output = event.output
                    else:
                        yield event
            finally:
                with suppress(RuntimeError):  # smolagents yields once more if a reader stops early
                    events.close()
        return output

    def _end(self, turn: FrameworkTurn, output: Any, timing: list[float], *, reset: bool) -> TurnEnd:
        """Return the end of a turn as plain data. Steps before a reset stay in the state."""
        stored = turn.stored_list("messages")
        first = len(stored) if reset else turn.state.get("first", 0)
        before = stored[first:]
        steps = self._known.dump(self.agent.memory.steps, before, self._observed)
        recorded = {
            "output": dump_value(output),
            "first": first,
            "own": first + len(before),
            "end": first + len(steps),
            "timing": timing,
        }
        if is_lost(recorded["output"]):
            warn_of_lost("the answer is", output, "the recorded result of this run is its text")
        state = {"first": first, **dump_variables(self.agent)}
        if len(steps) >= len(before) and all(map(operator.is_, before, steps)):
            return TurnEnd(output, recorded, state, {"messages": steps[len(before) :]})
        return TurnEnd(output, recorded, {**state, "messages": [*stored[:first], *steps]})

    def _load_steps(self, recorded: Mapping[str, Any]) -> list[Any]:
        """Return the steps that the memory had after a finished turn."""
        stored = self._session.state["messages"][recorded["first"] : recorded["end"]]
        return [load_step(item) for item in stored]


def _identify(task: str, options: Mapping[str, Any]) -> Any:
    """Return what identifies a turn: the task, and the images and arguments that are given with it."""
    identity = ValueIdentity()
    given = {name: options[name] for name in ("images", "additional_args") if options[name]}
    return {"task": task, **identity.of(given)} if given else task


def _without_result(events: Generator[Any, None, Any]) -> Generator[Any, None, None]:
    yield from events


def _make_result(output: Any, steps: Sequence[Any], timing: Timing) -> RunResult:
    """Return what `agent.run(..., return_full_result=True)` returns."""
    counted = [step.token_usage for step in steps if isinstance(step, ActionStep | PlanningStep)]
    usage = None
    if None not in counted:
        spent = [sum(item.input_tokens for item in counted), sum(item.output_tokens for item in counted)]
        usage = TokenUsage(input_tokens=spent[0], output_tokens=spent[1])
    is_cut_short = bool(steps) and isinstance(getattr(steps[-1], "error", None), AgentMaxStepsError)
    return RunResult(
        output=output,
        state="max_steps_error" if is_cut_short else "success",
        steps=[step.dict() for step in steps],
        token_usage=usage,
        timing=timing,
    )
