"""`resumable(agent, ...)`: an agent, graph or swarm of Strands whose turns continue after a crash."""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from strands import Agent
from strands.agent import AgentResult
from strands.multiagent import MultiAgentResult, Swarm
from strands.multiagent.graph import Graph

from holdfast.adapters.base.event_stream import Emit, stream_turn
from holdfast.adapters.base.install import warn_if_untested
from holdfast.adapters.base.session import ResumableSession
from holdfast.adapters.base.turn import FrameworkTurn
from holdfast.adapters.strands.journal import record_turn
from holdfast.adapters.strands.node import recorded_nodes
from holdfast.adapters.strands.people import answer_interrupts
from holdfast.adapters.strands.result import dump_result, has_failed, load_result
from holdfast.adapters.strands.team import StrandsTeam
from holdfast.errors import UsageError
from holdfast.model.framework import Framework
from holdfast.model.tool_effect import AGENT, Effect, declared_effects

warn_if_untested("strands-agents", "1.62", "2")

ENTRY = "invoke"  # of all entry points: a turn that was begun by one may be finished by another


def resumable(
    target: Agent | Graph | Swarm,
    *,
    session_id: str,
    store: Any = None,
    agent_id: str | None = None,
    workspace: str | os.PathLike[str] | None = None,
    tools: Mapping[str, Effect | str] | None = None,
) -> Any:
    """Return the agent, graph or swarm with entry points that continue after a crash.

    They are the target's own: a call, `invoke_async` and `stream_async`. `store` is a `Client`, a URL,
    or None for `.holdfast/store.db`. `tools` declares what tools do, by their names.
    """
    options = {"session_id": session_id, "store": store, "agent_id": agent_id, "workspace": workspace, "tools": tools}
    if isinstance(target, Agent):
        return ResumableStrandsAgent(target, **options)
    if isinstance(target, Graph | Swarm):
        return ResumableStrandsTeam(target, **options)
    raise UsageError(f"resumable() takes an Agent, a Graph or a Swarm of Strands, not a {type(target).__name__}")


class _Resumable:
    """What agents and groups of agents share: their turns."""

    def __init__(self, target: Any, *, tools: Mapping[str, Effect | str] | None, **options: Any) -> None:
        opaque = [name for name, effect in declared_effects(tools).items() if effect.kind != AGENT]
        self._target = target
        self._team = StrandsTeam(target, opaque)
        self._session = ResumableSession(Framework.STRANDS, tools=tools, **options)

    async def _invoke(self, given: Any, turn: str | None, args: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        return (await self._take(given, turn, args, options, None))["result"]

    async def _stream(
        self, given: Any, turn: str | None, args: tuple[Any, ...], options: Mapping[str, Any]
    ) -> AsyncIterator[Any]:
        async def take(emit: Emit) -> None:
            emit(await self._take(given, turn, args, options, emit))

        async for event in stream_turn(take):
            yield event

    async def _take(
        self, given: Any, turn: str | None, args: tuple[Any, ...], options: Mapping[str, Any], emit: Emit | None
    ) -> dict[str, Any]:
        """Take a turn; return its last event, which has the result."""
        _refuse_responses(given)
        self._session.check_tools(self._team.find_tools)
        async with self._session.open_turn(ENTRY, given, turn) as opened:
            if opened.turn is None:
                with self._session.guard_state():
                    result = load_result(opened.recorded, self._target, self._output_model(options))
                if emit is not None:
                    emit({"data": str(result)})
                return {"result": result}
            last = await self._run(opened.turn, given, args, options, emit)
            result = last["result"]
            if not has_failed(result):  # else the same call tries again
                opened.end = self._team.end_turn(result, dump_result(result, opened.turn.is_storable))
        return last

    async def _run(
        self, turn: FrameworkTurn, given: Any, args: tuple[Any, ...], options: Mapping[str, Any], emit: Emit | None
    ) -> dict[str, Any]:
        with record_turn(turn, self._team) as recording, recorded_nodes(turn, self._team.other_nodes):
            last = await self._follow(given, args, options, emit)
            while last["result"].interrupts:
                responses = await answer_interrupts(recording, last["result"].interrupts)
                last = await self._follow(responses, args, options, emit)
        if recording.broken_by is not None:
            raise recording.broken_by
        if getattr(last["result"], "checkpoint", None) is not None:
            raise UsageError("the agent pauses at checkpoints of its own: leave checkpointing=True out")
        return last

    async def _follow(
        self, given: Any, args: tuple[Any, ...], options: Mapping[str, Any], emit: Emit | None
    ) -> dict[str, Any]:
        """Run the target until it ends, or waits for people; return the event that has its result."""
        last: dict[str, Any] = {}
        async for event in self._target.stream_async(given, *args, **options):
            if isinstance(event.get("result"), AgentResult | MultiAgentResult):
                last = event
            elif emit is not None:
                emit(event)
        return last

    def _output_model(self, options: Mapping[str, Any]) -> Any:
        return None


class ResumableStrandsAgent(_Resumable):
    """An agent and its conversation in a store. The entry points are the agent's own.

    `turn` identifies a turn, for example by the id of the message that it answers. Without it, a
    turn is known by its prompt, and by how many turns with that prompt this process has finished.
    """

    def __init__(self, agent: Agent, *, agent_id: str | None = None, **options: Any) -> None:
        self.agent = agent
        super().__init__(agent, agent_id=agent_id or agent.name, **options)

    def __call__(self, prompt: Any = None, *, turn: str | None = None, **options: Any) -> AgentResult:
        """Take a turn, or continue it; a finished one returns its recorded result."""

        async def invoke() -> AgentResult:
            try:
                return await self.invoke_async(prompt, turn=turn, **options)
            finally:
                if self.agent.memory_manager is not None:  # its saves would end with this event loop
                    await self.agent.memory_manager.flush()

        return _run_in_thread(invoke)

    async def invoke_async(self, prompt: Any = None, *, turn: str | None = None, **options: Any) -> AgentResult:
        result: AgentResult = await self._invoke(prompt, turn, (), options)
        return result

    def stream_async(self, prompt: Any = None, *, turn: str | None = None, **options: Any) -> AsyncIterator[Any]:
        """Yield the events of a turn. Those of a finished one are its text and its result."""
        return self._stream(prompt, turn, (), options)

    def _output_model(self, options: Mapping[str, Any]) -> Any:
        # Private: an agent does not show the class of its answers otherwise.
        return options.get("structured_output_model") or self.agent._default_structured_output_model


class ResumableStrandsTeam(_Resumable):
    """A graph or a swarm and the conversations of its agents in a store. The entry points are its own.

    A call is a turn, as it is for an agent.
    """

    def __init__(self, group: Graph | Swarm, *, agent_id: str | None = None, **options: Any) -> None:
        self.group = group
        super().__init__(group, agent_id=agent_id or group.id, **options)

    def __call__(
        self, task: Any, invocation_state: dict[str, Any] | None = None, *, turn: str | None = None, **options: Any
    ) -> MultiAgentResult:
        """Take a turn, or continue it; a finished one returns its recorded result."""
        return _run_in_thread(lambda: self.invoke_async(task, invocation_state, turn=turn, **options))

    async def invoke_async(
        self, task: Any, invocation_state: dict[str, Any] | None = None, *, turn: str | None = None, **options: Any
    ) -> MultiAgentResult:
        result: MultiAgentResult = await self._invoke(task, turn, (invocation_state,), options)
        return result

    def stream_async(
        self, task: Any, invocation_state: dict[str, Any] | None = None, *, turn: str | None = None, **options: Any
    ) -> AsyncIterator[Any]:
        """Yield the events of a turn. Those of a finished one are its text and its result."""
        return self._stream(task, turn, (invocation_state,), options)


def _run_in_thread(make: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run a coroutine in an event loop of its own, as Strands does: a caller may have one that is running."""

    def run() -> Any:
        return asyncio.run(make())

    with ThreadPoolExecutor(1) as executor:
        return executor.submit(contextvars.copy_context().run, run).result()


def _refuse_responses(given: Any) -> None:
    if isinstance(given, list) and any(isinstance(item, Mapping) and "interruptResponse" in item for item in given):
        raise UsageError(
            "the prompt has responses to interrupts: a resumable agent gets them from `holdfast approve`, or from "
            "client.decide(...). Repeat the call with the turn's prompt"
        )
