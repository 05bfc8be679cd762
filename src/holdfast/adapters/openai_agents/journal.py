"""Copies of agents whose model and tool calls are recorded; the originals stay as they are.

A copy is an instance of a subclass of its agent's class. So tools that appear during a run, those of
MCP servers and of sandboxes, are copied where the SDK asks an agent for its tools.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import AsyncIterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from agents import Agent, Handoff, Model, ModelProvider, ModelResponse, RunConfig

from holdfast.adapters.base.turn import FrameworkTurn
from holdfast.adapters.openai_agents.response import StreamCollector, dump_response, load_response, replay_events
from holdfast.adapters.openai_agents.tools import copy_tool

_speaker: ContextVar[str] = ContextVar("holdfast_openai_agents_speaker", default="agent")
"""The name of the agent whose model is asked. The SDK asks an agent for its tools first, in the same task."""


class AgentJournal:
    """The copies of one turn. `history` has the items of the conversation before the turn."""

    def __init__(self, turn: FrameworkTurn, history: Sequence[Mapping[str, Any]]) -> None:
        self.turn = turn
        self.history = list(history)
        self.changed_arguments: dict[str, Mapping[str, Any]] = {}  # by call: those that a person has approved instead
        self._copies: dict[int, tuple[Any, Any]] = {}  # by the id of the original: it, and its copy
        self._originals: dict[int, Any] = {}  # by the id of the copy
        self._classes: dict[type, type] = {}

    # -- agents --------------------------------------------------------------------------------------------------------

    def copy_agent(self, agent: Any) -> Any:
        """Return the copy of an agent, with copies of all agents that it can hand off to."""
        found = self._find_copy(agent)
        if found is not None:
            return found
        copied = self._remember(agent, copy.copy(agent))
        copied.__class__ = self._class_of(type(agent))
        self._copy_parts(copied)  # after it is remembered: agents may hand off in a circle
        return copied

    def original_of(self, agent: Any) -> Any:
        """Return the user's own agent for a copy."""
        return self._originals.get(id(agent), agent)

    def _copy_parts(self, agent: Any) -> None:
        if isinstance(agent.model, Model):
            agent.model = self.copy_model(agent.model)
        agent.tools = [self.copy_tool(tool) for tool in agent.tools]
        agent.handoffs = [
            self.copy_agent(handoff) if isinstance(handoff, Agent) else self._copy_handoff(handoff)
            for handoff in agent.handoffs
        ]

    def _copy_handoff(self, handoff: Handoff[Any, Any]) -> Handoff[Any, Any]:
        found = self._find_copy(handoff)
        if found is not None:
            return found
        invoke = handoff.on_invoke_handoff

        async def invoke_with_copy(*args: Any, **kwargs: Any) -> Any:
            return self.copy_agent(await invoke(*args, **kwargs))

        copied = self._remember(handoff, copy.copy(handoff))
        copied.on_invoke_handoff = invoke_with_copy
        return copied

    def _class_of(self, kind: type) -> type:
        """Return a subclass of an agent's class, whose instances have copies of tools only."""
        if kind in self._classes:
            return self._classes[kind]
        journal = self

        class JournaledAgent(kind):  # type: ignore[valid-type, misc]  # the class is known at run time only
            def __post_init__(self) -> None:  # a sandbox makes copies of copies, with tools of its own
                super().__post_init__()
                journal._copy_parts(self)

            async def get_all_tools(self, run_context: Any) -> list[Any]:
                _speaker.set(self.name)
                return [journal.copy_tool(tool) for tool in await super().get_all_tools(run_context)]

        JournaledAgent.__name__, JournaledAgent.__qualname__ = kind.__name__, kind.__qualname__
        return self._classes.setdefault(kind, JournaledAgent)

    # -- models and tools ----------------------------------------------------------------------------------------------

    def copy_tool(self, tool: Any) -> Any:
        found = self._find_copy(tool)
        return found if found is not None else self._remember(tool, copy_tool(self, tool))

    def copy_model(self, model: Model) -> Model:
        found = self._find_copy(model)
        return found if found is not None else self._remember(model, JournaledAgentModel(model, self))

    def copy_run_config(self, config: RunConfig) -> RunConfig:
        """Return a run config whose models, given or looked up by name, are recorded."""
        model = self.copy_model(config.model) if isinstance(config.model, Model) else config.model
        provider = config.model_provider
        if not isinstance(provider, JournaledProvider):
            provider = JournaledProvider(provider, self)
        return dataclasses.replace(config, model=model, model_provider=provider)

    def _find_copy(self, given: Any) -> Any:
        if id(given) in self._originals:
            return given  # a copy is its own
        return self._copies.get(id(given), (None, None))[1]

    def _remember(self, original: Any, copied: Any) -> Any:
        # The entries keep both objects alive: an id is theirs as long as the journal is.
        self._copies[id(original)] = (original, copied)
        self._originals[id(copied)] = original
        return copied


class JournaledProvider(ModelProvider):
    """A model provider whose models are recorded."""

    def __init__(self, provider: ModelProvider, journal: AgentJournal) -> None:
        self._provider = provider
        self._journal = journal

    def get_model(self, model_name: str | None) -> Model:
        return self._journal.copy_model(self._provider.get_model(model_name))

    async def aclose(self) -> None:
        await self._provider.aclose()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._provider, name)


class JournaledAgentModel(Model):
    """A model that gives the recorded answer to a request, or asks the user's own model."""

    def __init__(self, model: Model, journal: AgentJournal) -> None:
        self._model = model
        self._journal = journal

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        async def ask() -> dict[str, Any]:
            return dump_response(await self._model.get_response(*args, **kwargs))

        request = self._request(*args, **kwargs)
        return await self._journal.turn.call_model(_speaker.get(), request, ask, load_response)

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        request = self._request(*args, **kwargs)
        events = self._journal.turn.stream_model(
            _speaker.get(),
            request,
            lambda: self._model.stream_response(*args, **kwargs),
            StreamCollector().collect,
            replay_events,
        )
        async for event in events:
            yield event

    def _request(
        self,
        system_instructions: Any,
        input: Any,
        model_settings: Any,
        tools: Any,
        output_schema: Any,
        handoffs: Any,
        tracing: Any,
        *,
        previous_response_id: Any = None,
        conversation_id: Any = None,
        prompt: Any = None,
        **_: Any,
    ) -> dict[str, Any]:
        """Return what identifies a request: the place in the conversation, and what the model may answer with.

        Instructions and settings are left out. Instructions often have the time of day, and the SDK
        puts a random key for the provider's cache into the settings.
        """
        known = len(self._journal.history)
        # The turn stands for the conversation before it: to digest that for each request would take long.
        is_continued = isinstance(input, list) and known > 0 and input[:known] == self._journal.history
        return {
            "input": input[known:] if is_continued else input,
            "is_continued": is_continued,
            "tools": sorted(tool.name for tool in tools),
            "handoffs": sorted(handoff.tool_name for handoff in handoffs),
            "output": None if output_schema is None else output_schema.name(),
            "previous_response_id": previous_response_id,
            "conversation_id": conversation_id,
            "prompt": prompt,
        }

    async def close(self) -> None:
        await self._model.close()

    def get_retry_advice(self, request: Any) -> Any:
        return self._model.get_retry_advice(request)

    async def _cleanup_on_run_end(self, owner: object) -> None:
        await self._model._cleanup_on_run_end(owner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)
