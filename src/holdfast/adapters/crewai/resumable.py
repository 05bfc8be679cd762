"""`resumable(target, ...)`: a crew, flow or agent of CrewAI whose turns continue after a crash."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from crewai import Agent, Crew
from crewai.crews.crew_output import CrewOutput
from crewai.flow.flow import Flow
from crewai.lite_agent_output import LiteAgentOutput
from crewai.types.usage_metrics import UsageMetrics

from holdfast.adapters.base.install import warn_if_untested
from holdfast.adapters.base.known_tools import KnownTools
from holdfast.adapters.base.loaded_list import LoadedList
from holdfast.adapters.base.session import ResumableSession, TurnEnd
from holdfast.adapters.base.shared_target import hold
from holdfast.adapters.base.turn import FrameworkTurn
from holdfast.adapters.crewai.flow import ResumableFlow
from holdfast.adapters.crewai.history import insert_history
from holdfast.adapters.crewai.journal import CrewJournal
from holdfast.adapters.crewai.result import (
    dump_agent_output,
    dump_conversation,
    dump_crew_output,
    dump_messages,
    load_agent_output,
    load_crew_output,
    load_messages,
)
from holdfast.adapters.crewai.transcript import HISTORY
from holdfast.errors import UsageError
from holdfast.model.framework import Framework
from holdfast.model.tool_effect import Effect

warn_if_untested("crewai", "1.15.30", "2")

ENTRY = "kickoff"  # of all entry points: a turn that was begun by one may be finished by another


def resumable(
    target: Any,
    *,
    session_id: str,
    store: Any = None,
    agent_id: str | None = None,
    workspace: str | os.PathLike[str] | None = None,
    tools: Mapping[str, Effect | str] | None = None,
) -> Any:
    """Return the crew, flow or agent with `kickoff` and `kickoff_async`, which continue after a crash.

    `store` is a `SyncClient`, a URL, or None for `.holdfast/store.db`. `tools` declares what tools do,
    by their names.
    """
    kinds = ((Crew, ResumableCrew, "crew"), (Agent, ResumableCrewAgent, "agent"), (Flow, ResumableFlow, "flow"))
    for kind, made, name in kinds:
        if isinstance(target, kind):
            named = getattr(target, "role", None) or getattr(target, "name", None)
            if name == "flow":
                named = named or type(target).__name__
            session = ResumableSession(
                Framework.CREWAI,
                session_id=session_id,
                store=store,
                agent_id=agent_id or named or name,
                workspace=workspace,
                tools=tools,
                is_async=False,
            )
            return made(target, session)
    raise UsageError(f"resumable() takes a Crew, a Flow or an Agent of CrewAI, not a {type(target).__name__}")


def _refuse_event_loop() -> None:
    """Raise where CrewAI returns a coroutine instead of a result, or fails in the middle of a task."""
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        raise UsageError("kickoff was called within an event loop: use `await kickoff_async(...)` there")


class ResumableCrew:
    """A crew and its kickoffs in a store. Options of the entry points are the crew's.

    `turn` identifies a kickoff. Without it, a kickoff is known by its inputs, and by how many kickoffs
    with these inputs this process has finished.
    """

    def __init__(self, crew: Crew, session: ResumableSession) -> None:
        self.crew = crew
        self._session = session

    def kickoff(self, inputs: dict[str, Any] | None = None, *, turn: str | None = None, **options: Any) -> CrewOutput:
        """Kick the crew off, or continue; a finished kickoff returns its recorded output."""
        _refuse_event_loop()
        if self.crew.stream:
            raise UsageError(
                "the crew has stream=True: a resumable crew returns whole outputs. Set crew.stream = False"
            )

        members = (*self.crew.agents, self.crew.manager_agent)
        self._session.check_tools(lambda: find_tools(*members, *self.crew.tasks))

        def body(turn_: FrameworkTurn) -> TurnEnd:
            journal = CrewJournal(turn_)
            with insert_history(self.crew, turn_.state):
                output = journal.run(lambda: self.crew.kickoff(inputs=inputs, **options))
            if journal.usage:  # CrewAI counts the tokens of the process, which may have begun in this turn
                output.token_usage = UsageMetrics(**journal.usage)
            recorded, added = dump_crew_output(output, len(turn_.stored_list("messages")))
            return TurnEnd(output, recorded, _select_kept_state(turn_.state), {"messages": added})

        def load(recorded: Mapping[str, Any]) -> CrewOutput:
            return load_crew_output(recorded, self._session.state["messages"], self.crew.tasks)

        with hold([self.crew, *self.crew.tasks], "crew"):
            loaded: CrewOutput = self._session.take_turn_sync(ENTRY, inputs, turn, body, load)
        return loaded

    async def kickoff_async(
        self, inputs: dict[str, Any] | None = None, *, turn: str | None = None, **options: Any
    ) -> CrewOutput:
        """`kickoff` in a thread, as CrewAI does it."""
        return await asyncio.to_thread(self.kickoff, inputs, turn=turn, **options)


class ResumableCrewAgent:
    """An agent and its conversation in a store: each kickoff sees the messages of the earlier ones."""

    def __init__(self, agent: Agent, session: ResumableSession) -> None:
        self.agent = agent
        self._session = session
        self._messages = LoadedList(load_messages)

    def kickoff(
        self, messages: str | Sequence[Mapping[str, Any]], *, turn: str | None = None, **options: Any
    ) -> LiteAgentOutput:
        """Kick the agent off, or continue; a finished kickoff returns its recorded output."""
        _refuse_event_loop()
        self._session.check_tools(lambda: find_tools(self.agent))
        given = _as_list(messages)

        def body(turn_: FrameworkTurn) -> TurnEnd:
            journal = self._open_journal(turn_)
            output = journal.run(lambda: self.agent.kickoff([*journal.history, *given], **options))
            return self._end(turn_, output, given)

        load = partial(self._load, options.get("response_format"))
        loaded: LiteAgentOutput = self._session.take_turn_sync(ENTRY, self._identify_turn(messages), turn, body, load)
        return loaded

    async def kickoff_async(
        self, messages: str | Sequence[Mapping[str, Any]], *, turn: str | None = None, **options: Any
    ) -> LiteAgentOutput:
        """`kickoff` in the running event loop."""
        self._session.check_tools(lambda: find_tools(self.agent))
        given = _as_list(messages)

        async def body(turn_: FrameworkTurn) -> TurnEnd:
            journal = self._open_journal(turn_)
            with journal.recording():
                # A task of its own: CrewAI leaves events open in its context if it is interrupted.
                conversation = [*journal.history, *given]
                output = await asyncio.create_task(self.agent.kickoff_async(conversation, **options))
            return self._end(turn_, output, given)

        load = partial(self._load, options.get("response_format"))
        loaded: LiteAgentOutput = await self._session.take_turn(ENTRY, self._identify_turn(messages), turn, body, load)
        return loaded

    def _open_journal(self, turn: FrameworkTurn) -> CrewJournal:
        return CrewJournal(turn, turn.load_list("messages", self._messages))

    def _end(self, turn: FrameworkTurn, output: LiteAgentOutput, given: Sequence[Mapping[str, Any]]) -> TurnEnd:
        before = len(turn.stored_list("messages"))
        asked = before + len(given) + sum(message["role"] == "system" for message in output.messages[:1])
        added = dump_conversation([*given, *output.messages[asked:]], self.agent.role, output.raw)
        recorded = dump_agent_output(output, added, before)
        return TurnEnd(output, recorded, _select_kept_state(turn.state), {"messages": added})

    def _load(self, kind: Any, recorded: Mapping[str, Any]) -> LiteAgentOutput:
        return load_agent_output(recorded, self._session.state["messages"], kind)

    def _identify_turn(self, messages: str | Sequence[Mapping[str, Any]]) -> Any:
        """Return what identifies a turn."""
        return messages if isinstance(messages, str) else dump_messages(messages, self.agent.role)


def _select_kept_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return what stays in the state of a session that came from another framework."""
    return {HISTORY: state[HISTORY]} if HISTORY in state else {}


def find_tools(*holders: Any) -> KnownTools:
    """Return the tools of agents and tasks. Those of MCP servers and apps appear during the turn."""
    known = KnownTools()
    for holder in holders:
        known.add(tool.name for tool in getattr(holder, "tools", None) or ())
        if getattr(holder, "mcps", None) or getattr(holder, "apps", None):
            known.is_complete = False
    return known


def _as_list(messages: str | Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return (
        [{"role": "user", "content": messages}]
        if isinstance(messages, str)
        else [dict(message) for message in messages]
    )
