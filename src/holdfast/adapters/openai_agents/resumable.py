"""`resumable(agent, ...)`: an agent of the OpenAI Agents SDK whose turns continue after a crash."""

from __future__ import annotations

import os
import warnings
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from agents import Agent, RunConfig, Runner, RunResult, RunState
from agents.sandbox import SandboxAgent

from holdfast.adapters.base.install import warn_if_untested
from holdfast.adapters.base.known_tools import KnownTools
from holdfast.adapters.base.loop_runner import LoopRunner
from holdfast.adapters.base.session import ResumableSession, TurnEnd
from holdfast.adapters.base.turn import FrameworkTurn
from holdfast.adapters.openai_agents.journal import AgentJournal
from holdfast.adapters.openai_agents.result import check_items, dump_result, load_result, plain_items
from holdfast.adapters.openai_agents.sandbox import find_snapshot, keep_files
from holdfast.adapters.openai_agents.stream import ResumableStream
from holdfast.adapters.openai_agents.tools import agent_of_tool, object_of
from holdfast.errors import HoldfastWarning, UsageError
from holdfast.model.framework import Framework
from holdfast.model.tool_effect import Effect

warn_if_untested("openai-agents", "0.24", "0.25")

ENTRY = "run"  # of all entry points: a turn that was begun by one may be finished by another
_FOR_A_STATE = ("max_turns", "hooks", "run_config", "error_handlers")  # options that the state of a run lacks
_SERVER = ("conversation_id", "previous_response_id", "auto_previous_response_id")


def resumable(
    target: Agent[Any],
    *,
    session_id: str,
    store: Any = None,
    agent_id: str | None = None,
    workspace: str | os.PathLike[str] | None = None,
    tools: Mapping[str, Effect | str] | None = None,
) -> ResumableOpenAIAgent:
    """Return the agent with `run`, `run_sync` and `run_streamed`, which continue after a crash.

    `store` is a `Client`, a URL, or None for `.holdfast/store.db`. `tools` declares what tools do, by
    their names.
    """
    return ResumableOpenAIAgent(
        target, session_id=session_id, store=store, agent_id=agent_id, workspace=workspace, tools=tools
    )


class ResumableOpenAIAgent:
    """An agent and its conversation in a store. The entry points are those of the SDK's `Runner`.

    `turn` identifies a turn, for example by the id of the message that it answers. Without it, a
    turn is known by its input, and by how many turns with that input this process has finished.
    The other options are the `Runner`'s, without `session`: the store has the conversation.
    """

    def __init__(self, agent: Agent[Any], *, session_id: str, agent_id: str | None = None, **options: Any) -> None:
        if not isinstance(agent, Agent):
            raise UsageError(f"resumable() takes an Agent of the OpenAI Agents SDK, not a {type(agent).__name__}")
        self.agent = agent
        self._session = ResumableSession(
            Framework.OPENAI_AGENTS, session_id=session_id, agent_id=agent_id or agent.name, **options
        )
        self._loop = LoopRunner()
        self._handed_to: dict[str, Agent[Any]] = {}  # agents that only a handoff's function knows

    # -- entry points --------------------------------------------------------------------------------------------------

    async def run(self, input: Any, *, turn: str | None = None, **options: Any) -> RunResult:
        """Run a turn, or continue it; a finished one returns its recorded result."""
        _refuse_options(input, options)
        self._session.check_tools(self._find_tools)

        async def body(turn_: FrameworkTurn) -> TurnEnd:
            async with self._prepare(turn_, input, options) as prepared:
                result = await Runner.run(prepared.agent, prepared.input, **prepared.options)
                while result.interruptions:
                    state = await _decide(prepared.journal, result)
                    result = await Runner.run(prepared.agent, state, **prepared.options_for_state)
                return self._end(prepared, result)

        loaded: RunResult = await self._session.take_turn(ENTRY, _simplify_input(input), turn, body, self._load)
        return loaded

    def run_sync(self, input: Any, *, turn: str | None = None, **options: Any) -> RunResult:
        """`run` for programs without an event loop."""
        return self._loop.run(self.run(input, turn=turn, **options))

    def run_streamed(self, input: Any, *, turn: str | None = None, **options: Any) -> ResumableStream:
        """Begin a turn, or continue it, and return its stream: `async for event in stream.stream_events()`."""
        _refuse_options(input, options)
        self._session.check_tools(self._find_tools)
        stream = ResumableStream(self.agent, input)

        async def body(turn_: FrameworkTurn) -> TurnEnd:
            async with self._prepare(turn_, input, options) as prepared:
                result = Runner.run_streamed(prepared.agent, prepared.input, **prepared.options)
                await stream.follow(result, prepared.journal)
                while result.interruptions:
                    state = await _decide(prepared.journal, result)
                    result = Runner.run_streamed(prepared.agent, state, **prepared.options_for_state)
                    await stream.follow(result, prepared.journal)
                return self._end(prepared, result)

        stream.begin(self._session.take_turn(ENTRY, _simplify_input(input), turn, body, self._load))
        return stream

    # -- a turn --------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _prepare(self, turn: FrameworkTurn, given: Any, options: Mapping[str, Any]) -> AsyncIterator[_AgentRun]:
        config = options.get("run_config")
        is_own = config is None
        if not isinstance(config, RunConfig):
            config = RunConfig(**(config or {}))
        check_items(turn.stored_list("messages"))
        history = turn.state.get("messages", [])
        config = keep_files(config, self._session.session_id, turn.client, turn.key, turn.state.get("files"))
        journal = AgentJournal(turn, history)
        with self._session.guard_state():
            agent = self._find_agent(turn.state.get("agent") or self.agent.name)
        try:
            yield _AgentRun(
                journal, agent, plain_items(given), {**options, "run_config": journal.copy_run_config(config)}
            )
        finally:
            if is_own:
                await config.model_provider.aclose()

    def _end(self, prepared: _AgentRun, result: Any) -> TurnEnd:
        journal = prepared.journal
        _show_originals(journal, result)
        self._handed_to[result.last_agent.name] = result.last_agent
        recorded, added = dump_result(result, len(journal.history), len(prepared.given))
        state = {"agent": result.last_agent.name}
        files = find_snapshot(prepared.options["run_config"])
        if files is not None and (files.saved or files.checkpoint_id):
            state["files"] = files.saved or files.checkpoint_id  # of the sandbox, for the next turn and for forks
        return TurnEnd(result, recorded, state, {"messages": [*prepared.given, *added]})

    def _load(self, recorded: Mapping[str, Any]) -> RunResult:
        return load_result(recorded, self._session.state["messages"], self._find_agent)

    def _find_tools(self) -> KnownTools:
        return find_tools(self.agent, *self._handed_to.values())

    def _find_agent(self, name: str) -> Agent[Any]:
        return find_agent(self.agent, name, self._session.session_id, self._handed_to)


def find_agent(
    first: Agent[Any], name: str, session_id: str, handed_to: Mapping[str, Agent[Any]] | None = None
) -> Agent[Any]:
    """Return the agent of that name that the first one can hand off to; the first one if there is none."""
    known = {agent.name: agent for agent in reversed(list(_walk(first)))} | {first.name: first}
    found = known.get(name, (handed_to or {}).get(name))
    if found is None:
        warnings.warn(
            f"session {session_id!r:.60} was handed to the agent {name!r:.60}, which can't be found from "
            f"{first.name!r:.60}: {first.name!r:.60} continues. Add it to the handoffs to avoid that",
            HoldfastWarning,
            stacklevel=2,
        )
        return first
    return found


class _AgentRun:
    """What a run is started with: copies of the agents, the whole input, and the options."""

    def __init__(
        self, journal: AgentJournal, agent: Agent[Any], given: list[dict[str, Any]], options: dict[str, Any]
    ) -> None:
        self.journal = journal
        self.agent = journal.copy_agent(agent)
        self.given = given
        self.options = options
        self.options_for_state = {name: options[name] for name in _FOR_A_STATE if name in options}
        # A provider that keeps the conversation itself is given what is new.
        is_kept_by_server = any(options.get(name) for name in _SERVER)
        self.input = given if is_kept_by_server else [*journal.history, *given]


async def _decide(journal: AgentJournal, result: Any) -> RunState[Any]:
    """Ask people about the calls that wait for approval, and return the state that has their decisions."""
    state = result.to_state()
    asked = [(item.name or "tool", _arguments_of(item), item.call_id or "") for item in result.interruptions]
    answers = await journal.turn.request_approvals(asked)
    for item, answer in zip(result.interruptions, answers, strict=True):
        if not answer.is_approved:
            state.reject(item, rejection_message=answer.note)
            continue
        if answer.arguments is not None:
            journal.changed_arguments[item.call_id] = answer.arguments
        state.approve(item)
    return state


def _arguments_of(item: Any) -> dict[str, Any]:
    text = item.arguments or ""
    found = object_of(text)
    return {"input": text} if found is None else found


def _show_originals(journal: AgentJournal, result: Any) -> None:
    """Replace the copies of agents in a finished result by the user's own agents."""
    for item in result.new_items:
        for name in ("agent", "source_agent", "target_agent"):
            if getattr(item, name, None) is not None:
                setattr(item, name, journal.original_of(getattr(item, name)))
        item.__post_init__()  # which keeps weak references to them
    if isinstance(result, RunResult):
        result._last_agent = journal.original_of(result.last_agent)
        result.__post_init__()
    else:
        result.current_agent = journal.original_of(result.current_agent)


def find_tools(*agents: Agent[Any]) -> KnownTools:
    """Return the tools of agents, and of those that they hand off to or use as tools."""
    known, waiting, seen = KnownTools(), list(agents), set[int]()
    while waiting:
        agent = waiting.pop()
        if id(agent) in seen:
            continue
        seen.add(id(agent))
        known.add(tool.name for tool in agent.tools)
        waiting += _walk(agent)
        inner = [agent_of_tool(tool) for tool in agent.tools]
        waiting += [item for item in inner if item is not None]
        # MCP servers, sandboxes and functions that choose an agent are asked during the turn.
        is_open = bool(agent.mcp_servers) or isinstance(agent, SandboxAgent)
        if is_open or any(not isinstance(handoff, Agent) and _target(handoff) is None for handoff in agent.handoffs):
            known.is_complete = False
    return known


def _target(handoff: Any) -> Agent[Any] | None:
    """Return the agent of a handoff; None if only its function knows it."""
    reference = getattr(handoff, "_agent_ref", None)  # private: a handoff shows only the name of its agent
    found = handoff if isinstance(handoff, Agent) else reference() if reference is not None else None
    return found if isinstance(found, Agent) else None


def _walk(agent: Agent[Any]) -> Iterator[Agent[Any]]:
    """Yield the agents that an agent can hand off to, itself first."""
    waiting, seen = [agent], {id(agent)}
    while waiting:
        item = waiting.pop(0)
        yield item
        for handoff in item.handoffs:
            found = _target(handoff)
            if found is not None and id(found) not in seen:
                seen.add(id(found))
                waiting.append(found)


def _simplify_input(input: Any) -> Any:
    """Return the input as plain data, as the caller wrote it."""
    return input if isinstance(input, str) else plain_items(input)


def _refuse_options(input: Any, options: Mapping[str, Any]) -> None:
    if isinstance(input, RunState):
        raise UsageError(
            "the input is a RunState: a resumable agent keeps that itself. Repeat the call with the turn's input; "
            "decisions are made by `holdfast approve`, or client.decide(...)"
        )
    if options.get("session") is not None:
        raise UsageError("session= can't be given: the store has the conversation of a resumable agent. Leave it out")
