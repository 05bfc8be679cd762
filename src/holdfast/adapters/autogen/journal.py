"""The journal of a team: during a turn, its models, tools, code and people are reached through it.

AutoGen's agents have no hooks for that. So a turn replaces them in the attributes of all agents that
belong to the target, by their types, and puts the originals back at its end. A group chat manager
keeps what it was made with; outside a turn, a replacement passes every call on.
"""

from __future__ import annotations

import logging
from asyncio import CancelledError
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from autogen_agentchat.agents import CodeExecutorAgent, SocietyOfMindAgent, UserProxyAgent
from autogen_agentchat.agents._user_proxy_agent import cancellable_input
from autogen_agentchat.base import ChatAgent, Team
from autogen_agentchat.teams import BaseGroupChat
from autogen_agentchat.tools._task_runner_tool import TaskRunnerTool
from autogen_core import ROOT_LOGGER_NAME, SingleThreadedAgentRuntime
from autogen_core.code_executor import CodeExecutor
from autogen_core.models import ChatCompletionClient, UserMessage
from autogen_core.tools import StaticWorkbench, Workbench

from holdfast.adapters.autogen.model import JournaledClient, TurnStoppedError
from holdfast.adapters.autogen.people import ask_person, record_approval, record_input
from holdfast.adapters.autogen.tools import EXECUTE_CODE, JournaledCodeExecutor, JournaledWorkbench
from holdfast.adapters.base.known_tools import KnownTools
from holdfast.adapters.base.message_digests import MessageDigests
from holdfast.adapters.base.turn import FrameworkTurn
from holdfast.errors import UsageError

_REPLACED = (ChatCompletionClient, Workbench, CodeExecutor)


def dump_message(message: Any) -> str:
    """Return a message of a request as a text."""
    return str(message.model_dump_json())


def is_heard(message: Any) -> bool:
    """Return whether a message of a request is what another agent, or the user, has said."""
    return isinstance(message, UserMessage)


class TeamJournal:
    """What the replacements of one target share. `turn` is None between turns."""

    def __init__(self, target: Any) -> None:
        self.target = target
        self.turn: FrameworkTurn | None = None
        self.is_stopped = False  # the caller has cancelled the turn
        self.digests = MessageDigests(dump_message, is_unordered=is_heard)
        self.loaded: list[Any] = []  # of a single agent: the messages of its model context before the turn
        self.is_shared = False  # whether the conversation tells what these are
        self.teams: list[BaseGroupChat] = []
        self.members: list[Any] = []  # all agents and teams of the target
        self.extra_states: dict[str, Any] = {}  # by name: what has a state that the target's own state lacks
        self.tools = KnownTools()  # of all agents
        self._replaced: list[tuple[Any, str, Any]] = []
        self._seen: set[int] = set()

    @contextmanager
    def recording(self, turn: FrameworkTurn) -> Iterator[None]:
        """Record the calls of the target while the context is open."""
        self.turn, self.is_stopped = turn, False
        self.digests = MessageDigests(dump_message, is_unordered=is_heard)
        logger = logging.getLogger(ROOT_LOGGER_NAME)
        logger.addFilter(self._is_news)
        try:
            self.find_agents()
            for team in self.teams:
                self._renew(team)
            yield
        finally:
            logger.removeFilter(self._is_news)
            self.turn = None
            while self._replaced:
                holder, name, original = self._replaced.pop()
                setattr(holder, name, original)

    def find_tools(self) -> KnownTools:
        """Return the tools of all agents of the target."""
        self.find_agents()
        return self.tools

    def find_agents(self) -> None:
        """Find all agents and teams of the target. During a turn, replace what they reach the world with."""
        self.teams, self.members, self.extra_states, self._seen = [], [], {}, set()
        self.tools = KnownTools()
        self._visit(self.target, str(self.target.name))

    # -- agents --------------------------------------------------------------------------------------------------------

    def _visit(self, agent: Any, path: str) -> None:
        """Visit an agent or team, and those within it."""
        if id(agent) in self._seen:
            return
        self._seen.add(id(agent))
        self.members.append(agent)
        if not type(agent).__module__.startswith(("autogen_agentchat.", "autogen_ext.")):
            self.tools.is_complete = False  # an agent of the user's own, which may get tools as it likes
        if isinstance(agent, BaseGroupChat):
            self.teams.append(agent)
        elif isinstance(agent, UserProxyAgent):
            is_default = agent.input_func is cancellable_input
            made = ask_person(self, agent.name) if is_default else record_input(self, agent)
            self._replace(agent, "input_func", made)
            self._replace(agent, "_is_async", True)
            return
        elif isinstance(agent, CodeExecutorAgent) and agent._approval_func is not None:
            self._replace(agent, "_approval_func", record_approval(self, agent))
            self._replace(agent, "_approval_func_is_async", True)
        elif isinstance(agent, SocietyOfMindAgent):  # its own state lacks its conversation
            self.extra_states[path] = agent._model_context  # private, as there is no other way to it
        for name, value in list(vars(agent).items()):
            found = self._replacement(value, agent, path)
            if found is not value:
                self._replace(agent, name, found)

    def _replacement(self, value: Any, agent: Any, path: str) -> Any:
        if isinstance(value, JournaledClient | JournaledWorkbench | JournaledCodeExecutor):
            return value
        if isinstance(value, ChatCompletionClient):
            return JournaledClient(value, self, str(agent.name))
        if isinstance(value, Workbench):
            self._visit_tools(value, path)
            return JournaledWorkbench(value, self)
        if isinstance(value, CodeExecutor):
            self.tools.add([EXECUTE_CODE])
            return JournaledCodeExecutor(value, self)
        if isinstance(value, ChatAgent | Team):
            self._visit(value, f"{path}/{value.name}")
        elif isinstance(value, list | tuple) and any(isinstance(item, (*_REPLACED, ChatAgent, Team)) for item in value):
            made = [self._replacement(item, agent, path) for item in value]
            return value if all(item is other for item, other in zip(made, value, strict=True)) else type(value)(made)
        return value

    def _visit_tools(self, workbench: Workbench, path: str) -> None:
        """Visit agents that are used as tools. No state of a team has theirs."""
        if not isinstance(workbench, StaticWorkbench):
            self.tools.is_complete = False
            return
        self.tools.add(tool.name for tool in workbench._tools)
        self.tools.add(workbench._override_name_to_original)
        for tool in workbench._tools:
            if isinstance(tool, TaskRunnerTool):
                self.extra_states[f"{path}/{tool.name}"] = tool._task_runner
                self._visit(tool._task_runner, f"{path}/{tool.name}")

    def _renew(self, team: BaseGroupChat) -> None:
        """Give a team a new runtime, with a new manager.

        A manager that was cut off still waits for the speaker that failed, whatever state it loads.
        """
        if not team._embedded_runtime:
            raise UsageError(
                f"the team {team.name!r:.60} has a runtime of its own, where its calls can't be recorded. Make the "
                "team without runtime="
            )
        if team._is_running:
            raise UsageError(f"the team {team.name!r:.60} is running. Wait until it has ended")
        team._runtime = SingleThreadedAgentRuntime(ignore_unhandled_exceptions=False)
        team._initialized = False

    def _is_news(self, record: logging.LogRecord) -> bool:
        """Return False for the tracebacks that AutoGen logs because the turn ends: the caller gets the reason."""
        if self.turn is None or (self.turn.ended_by is None and not self.is_stopped):
            return True
        error: BaseException | None = record.exc_info[1] if record.exc_info else None
        is_unhandled = "GroupChatError" in str(error)  # agents get word of the end, which they don't expect
        while error is not None and not isinstance(error, TurnStoppedError | CancelledError):
            error = error.__cause__
        return error is None and not is_unhandled

    def _replace(self, holder: Any, name: str, value: Any) -> None:
        if self.turn is None:
            return
        self._replaced.append((holder, name, getattr(holder, name)))
        setattr(holder, name, value)
