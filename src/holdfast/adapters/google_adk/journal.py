"""The plugin that records model and tool calls of a turn. The user's agents stay as they are.

Before each model call, ADK shows a plugin the request with its tools. There, the journal puts copies
of the tools into the request, and its own model in front of the agent's. Callbacks of agents and of
other plugins run as they do without it.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping
from itertools import takewhile
from typing import Any

from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.llm_agent import LlmAgent
from google.adk.events.event_actions import EventActions
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.tool_confirmation import ToolConfirmation
from pydantic import PrivateAttr

from holdfast.adapters.base.digest import digest
from holdfast.adapters.base.known_tools import KnownTools
from holdfast.adapters.base.turn import FrameworkTurn
from holdfast.adapters.google_adk.event import dump_model, load_response, to_plain

_OF_THE_FRAMEWORK = (
    "transfer_to_agent",
    "exit_loop",
    "set_model_response",
    "finish_task",
)  # they change nothing outside
_ACTIONS = "adk_actions"


class AdkJournal(BasePlugin):
    """The calls of one turn."""

    def __init__(self, turn: FrameworkTurn) -> None:
        super().__init__(name="holdfast")
        self.turn = turn

    async def before_model_callback(self, *, callback_context: Any, llm_request: LlmRequest) -> None:
        for name, tool in llm_request.tools_dict.items():
            llm_request.tools_dict[name] = self._copy_tool(tool)
        # Private: the context of a callback shows neither its agent nor its session otherwise.
        invocation = callback_context._invocation_context
        agent = invocation.agent
        if not isinstance(agent, LlmAgent):
            return
        model = JournaledLlm(model=llm_request.model or "")
        model._journal, model._agent, model._invocation = self, agent, invocation
        model._inner = await agent.canonical_model_async(callback_context)
        invocation.agent = agent.model_copy(update={"model": model})  # until the model is asked, right after this

    async def before_tool_callback(self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: Any) -> Any:
        """Record calls of tools that came from no request: ADK makes them after it got credentials."""
        is_unknown = type(tool) is BaseTool  # ADK's stand-in for a tool that the model made up: it tells the model
        if is_unknown or self._copy_tool(tool) is tool:
            return None
        response = await self._call_tool(tool, tool_args, tool_context)
        return response if isinstance(response, dict) else {"result": response}

    # -- models --------------------------------------------------------------------------------------------------------

    async def ask(self, model: BaseLlm, agent: str, request: LlmRequest, *, stream: bool) -> AsyncIterator[LlmResponse]:
        """Yield the recorded answer to a request, or ask the model and record its answer."""
        whole: list[dict[str, Any]] = []

        async def live() -> AsyncIterator[tuple[LlmResponse, bool]]:
            held = None
            async for response in model.generate_content_async(request, stream=stream):
                if held is not None:
                    yield held, False
                held = None if response.partial else response
                if held is None:
                    yield response, False
                else:
                    _identify_calls(held)
            if held is not None:
                yield held, True  # recorded before it is yielded

        def collect(event: tuple[LlmResponse, bool]) -> list[dict[str, Any]] | None:
            response, is_last = event
            if not response.partial:
                whole.append(dump_model(response))
            return whole if is_last else None

        def replay(answer: list[Mapping[str, Any]]) -> Iterable[tuple[LlmResponse, bool]]:
            return ((load_response(item), True) for item in answer)

        async for response, _ in self.turn.stream_model(agent, _identify(request), live, collect, replay):
            yield response

    # -- tools ---------------------------------------------------------------------------------------------------------

    def _copy_tool(self, tool: BaseTool) -> BaseTool:
        """Return a copy of a tool whose calls are recorded; the tool itself, if there is nothing to record."""
        # `_defers_response` is private: nothing else tells that the result of a call comes later.
        if isinstance(tool, AgentTool) or tool.name in _OF_THE_FRAMEWORK or tool._defers_response:
            return tool  # the calls of an agent's model and tools are recorded, not the call of the agent
        if getattr(tool, "_holdfast_journal", None) is self:
            return tool
        copied = copy.copy(tool)

        async def run_async(*, args: dict[str, Any], tool_context: Any) -> Any:
            return await self._call_tool(tool, args, tool_context)

        async def check_require_confirmation(*_: Any, **__: Any) -> bool:
            return False  # asked for in `_call_tool`

        copied.run_async = run_async  # type: ignore[method-assign]  # of this copy only
        copied.check_require_confirmation = check_require_confirmation
        copied._holdfast_journal = self
        return copied

    async def _call_tool(self, tool: BaseTool, args: dict[str, Any], context: Any) -> Any:
        id_ = context.function_call_id
        if context.tool_confirmation is None and await tool.check_require_confirmation(args, context) is True:
            answer = await self.turn.request_approval(tool.name, args, call_id=id_)
            if not answer.is_approved:
                return _make_rejection(answer.note)
            args = dict(answer.arguments or args)
            context.tool_confirmation = ToolConfirmation(confirmed=True)
        response = await self._run_tool(tool, args, context, id_)
        asked = context.actions.requested_tool_confirmations.pop(id_, None)
        if asked is None:
            return response
        # The tool itself wants to be confirmed: ask, and run it again with the answer.
        answer = await self.turn.request_approval(tool.name, args, call_id=f"{id_}:confirmation")
        payload = asked.payload if answer.arguments is None else dict(answer.arguments)
        context.tool_confirmation = ToolConfirmation(
            hint=asked.hint, confirmed=answer.is_approved, payload=payload if answer.is_approved else None
        )
        context.actions.skip_summarization = None
        return await self._run_tool(tool, args, context, f"{id_}:confirmed")

    async def _run_tool(self, tool: BaseTool, args: dict[str, Any], context: Any, id_: str) -> Any:
        is_replayed = True

        async def call(**given: Any) -> Any:
            nonlocal is_replayed
            is_replayed = False
            response = to_plain(await tool.run_async(args=given, tool_context=context))
            actions = dump_model(context.actions)
            return {_ACTIONS: actions, "response": response} if actions else response

        function = getattr(tool, "func", None)
        response, actions = await self.turn.call_tool(
            tool.name, args, call, call_id=id_, function=function, load=_load_result
        )
        if is_replayed and actions is not None:
            _apply(actions, context.actions)
        return response


def _load_result(recorded: Any) -> tuple[Any, EventActions | None]:
    """Return a tool's response, and what the tool did to its context, if it did anything."""
    if not isinstance(recorded, Mapping) or _ACTIONS not in recorded:
        return recorded, None
    return recorded["response"], EventActions.model_validate(recorded[_ACTIONS])


def find_tools(root: Any) -> KnownTools:
    """Return the tools of an agent, its sub-agents, and agents that are used as tools."""
    known, waiting = KnownTools(), [root]
    while waiting:
        agent = waiting.pop()
        if not isinstance(agent, BaseAgent):
            known.is_complete = False  # the nodes of a workflow are known when they run
            continue
        waiting += agent.sub_agents
        for tool in getattr(agent, "tools", ()):
            if isinstance(tool, AgentTool):
                waiting.append(tool.agent)
            if isinstance(tool, BaseToolset):
                known.is_complete = False  # it is asked for its tools during the turn
            else:
                known.add([getattr(tool, "name", None) or getattr(tool, "__name__", type(tool).__name__)])
    return known


class JournaledLlm(BaseLlm):
    """A model that gives recorded answers, or asks the agent's own model."""

    _journal: AdkJournal = PrivateAttr()
    _agent: LlmAgent = PrivateAttr()
    _invocation: Any = PrivateAttr()
    _inner: BaseLlm = PrivateAttr()

    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> AsyncIterator[LlmResponse]:
        self._invocation.agent = self._agent
        async for response in self._journal.ask(self._inner, self._agent.name, llm_request, stream=stream):
            yield response


def _identify(request: LlmRequest) -> dict[str, Any]:
    """Return what identifies a request: its place in the conversation, what it answers to, and the tools.

    The turn stands for the conversation before it. Instructions are left out: they often have the
    time of day.
    """
    heard = list(takewhile(lambda content: content.role != "model", reversed(request.contents)))
    last = heard or request.contents[-1:]
    return {
        "place": len(request.contents),
        # Agents that work in parallel may be heard in another order in the next life.
        "last": sorted(digest(dump_model(content)) for content in last),
        "tools": sorted(request.tools_dict),
    }


def _identify_calls(response: LlmResponse) -> None:
    """Give calls their ids before the answer is recorded: ADK makes random ones in each life."""
    for part in (response.content.parts if response.content else None) or ():
        if part.function_call and not part.function_call.id:
            part.function_call.id = f"adk-{uuid.uuid4()}"


def _apply(recorded: EventActions, actions: EventActions) -> None:
    """Apply what a tool did to its context, when its call is replayed."""
    for name in recorded.model_fields_set:
        value, now = getattr(recorded, name), getattr(actions, name)
        if isinstance(now, dict):
            now.update(value)
        else:
            setattr(actions, name, value)


def _make_rejection(note: str | None) -> dict[str, str]:
    return {"error": "This tool call is rejected." + (f" {note}" if note else "")}
