"""Agents and tools of AG2 that record their calls in the turn that is under way.

Agents get a middleware, their tools a class of their own. Both find the turn in a context variable.
So they stay where they are, and outside a turn they pass every call on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from ag2 import Agent, Toolkit
from ag2.context import ConversationContext
from ag2.events import BaseEvent, HumanInputRequest, HumanMessage, ModelResponse, ToolCallEvent
from ag2.middleware import BaseMiddleware
from ag2.tools.final import FunctionTool
from ag2.tools.subagents.subagent_tool import SubagentTool
from ag2.tools.tool import Tool

from holdfast.adapters.ag2.journal import LLMCall, find_journal, is_recorded, raise_interrupts
from holdfast.adapters.ag2.people import ask_hook, ask_person
from holdfast.adapters.base.known_tools import KnownTools
from holdfast.errors import UsageError

_BACKGROUND = "function:ag2.tools.subagents.background:"
_SUBTASKS = ("run_subtask", "run_subtasks")  # tools that AG2 gives an agent with `tasks=`


class AgentInstallation:
    """Reaches the calls of an agent, of its tools, and of the agents that it has as tools.

    `sources` are the tools whose calls are recorded by their class. The middleware records others.
    `known` has the names of all tools.
    """

    def __init__(self, agent: Agent[Any], tools: Iterable[Tool] = ()) -> None:
        self.sources: set[str] = set()
        self.known = KnownTools()
        self._seen: set[int] = set()
        self._install(agent)
        for tool in tools:
            self._install_tool(tool, agent)

    def _install(self, agent: Agent[Any]) -> None:
        if id(agent) in self._seen:
            return
        self._seen.add(id(agent))
        if not any(isinstance(item.middleware, JournalFactory) for item in agent.middleware):
            agent.add_middleware(JournalFactory(agent))
        for tool in agent.tools:
            self._install_tool(tool, agent)
        tasks = agent.tasks
        if tasks is None:
            return
        self.known.add(_SUBTASKS)
        tasks.extra_tools = [FunctionTool.ensure_tool(tool) for tool in tasks.extra_tools]
        for tool in tasks.extra_tools:
            self._install_tool(tool, agent)
        config = tasks.config or agent.config
        if config is not None and not isinstance(config, JournaledConfig):  # AG2 makes agents with it, in the turn
            tasks.config = JournaledConfig(config, f"{agent.name} subtask")

    def _install_tool(self, tool: Tool, agent: Agent[Any]) -> None:
        inner = getattr(tool, "_tool", None)  # AG2's own tools, such as a shell, keep the function there
        self._note_name(tool, is_found_later=not isinstance(inner, FunctionTool))
        if isinstance(tool, SubagentTool):
            self._install(tool.agent)
        elif isinstance(tool, Toolkit):
            for item in tool.tools:
                self._install_tool(item, agent)
        elif isinstance(inner, FunctionTool):
            self._install_tool(inner, agent)
        elif type(tool) in (FunctionTool, JournaledFunctionTool):
            if tool.source.startswith(_BACKGROUND):
                raise UsageError(
                    f"agent {agent.name!r:.60} has the tool {tool.name!r:.60}, which runs an agent in the background: "
                    "what such an agent says can't be replayed in its order. Use `as_tool` instead"
                )
            tool.__class__ = JournaledFunctionTool  # in its place: toolkits and other tools keep theirs to themselves
            self.sources.add(tool.source)

    def _note_name(self, tool: Any, *, is_found_later: bool) -> None:
        """Note the name of a tool. Toolkits and servers of other classes may find further ones in the turn."""
        self.known.add([getattr(tool, "name", None) or getattr(tool, "__name__", "")])
        if (
            is_found_later
            and isinstance(tool, Tool)
            and not isinstance(tool, FunctionTool)
            and type(tool) is not Toolkit
        ):
            self.known.is_complete = False


class JournalFactory:
    """What makes the middleware of an agent, in every turn of AG2's."""

    def __init__(self, agent: Agent[Any]) -> None:
        self.agent = agent

    def __call__(self, event: BaseEvent, context: ConversationContext) -> JournalMiddleware:
        return JournalMiddleware(event, context, self.agent)


class JournalMiddleware(BaseMiddleware):
    """Records the model's answers, people's answers, and calls of tools that are no plain functions."""

    def __init__(self, event: BaseEvent, context: ConversationContext, agent: Agent[Any]) -> None:
        super().__init__(event, context)
        self._agent = agent

    async def on_llm_call(
        self, call_next: LLMCall, events: Sequence[BaseEvent], context: ConversationContext
    ) -> ModelResponse:
        journal = find_journal()
        if journal is None:
            return await call_next(events, context)
        return await journal.call_model(self._agent.name, events, context, call_next)

    async def on_tool_execution(self, call_next: Any, event: ToolCallEvent, context: ConversationContext) -> Any:
        journal = find_journal()
        if journal is None or event.source is None or event.source in journal.sources:
            return await call_next(event, context)
        return await journal.call_tool(event, context, call_next)

    async def on_human_input(
        self, call_next: Any, event: HumanInputRequest, context: ConversationContext
    ) -> HumanMessage:
        journal = find_journal()
        if journal is None:
            return await call_next(event, context)  # type: ignore[no-any-return]  # as AG2 declares it
        with raise_interrupts():
            if journal.asks_people and not self._agent.has_hitl_hook:
                text = await ask_person(journal, self._agent.name, event, context)
            else:
                text = await ask_hook(journal, self._agent.name, event, context, call_next)
        return HumanMessage(text, parent_id=event.id)


class JournaledFunctionTool(FunctionTool):
    """A tool whose calls are recorded: within AG2's approvals and other middleware of the tool."""

    __slots__ = ()

    async def __call__(self, event: ToolCallEvent, context: ConversationContext) -> Any:
        journal = find_journal()
        if journal is None or is_recorded(event.id):
            return await super().__call__(event, context)
        return await journal.call_tool(event, context, super().__call__, self.model.call)


class JournaledConfig:
    """A model's configuration for agents that AG2 makes in a turn: they have no middleware."""

    def __init__(self, config: Any, agent: str) -> None:
        self._config = config
        self._agent = agent

    def create(self) -> Callable[..., Awaitable[ModelResponse]]:
        client = self._config.create()

        async def ask(messages: Sequence[BaseEvent], context: ConversationContext, **options: Any) -> ModelResponse:
            async def call(events: Sequence[BaseEvent], heard: ConversationContext) -> ModelResponse:
                response: ModelResponse = await client(events, heard, **options)
                return response

            journal = find_journal()
            if journal is None:
                return await call(messages, context)
            return await journal.call_model(self._agent, messages, context, call)

        return ask

    def copy(self) -> JournaledConfig:
        return JournaledConfig(self._config.copy(), self._agent)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._config, name)
