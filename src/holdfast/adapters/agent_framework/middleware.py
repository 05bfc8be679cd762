"""Middleware that records the model and tool calls of the turn that is under way.

It finds the turn in a context variable. So it may stay on agents that are used as tools or stand in
a workflow, and outside a turn it passes every call on.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from agent_framework import (
    ChatContext,
    ChatMiddleware,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationContext,
    FunctionMiddleware,
    HistoryProvider,
    ResponseStream,
)
from agent_framework.exceptions import MiddlewareException, UserInputRequiredException

from holdfast.adapters.agent_framework.stored_session import check_messages, keys_of
from holdfast.adapters.base.known_tools import KnownTools
from holdfast.adapters.base.message_digests import MessageDigests
from holdfast.adapters.base.turn import FrameworkTurn
from holdfast.errors import CorruptError
from holdfast.model.effect import EffectKind

_IDS = ("id", "message_id")  # of messages and contents: the framework makes some up in every life
_AGENT_TOOL = "as_tool.<locals>._agent_wrapper"
_recording: ContextVar[TurnRecording | None] = ContextVar("holdfast_agent_framework_recording", default=None)


class TurnRecording:
    """What the middleware of one turn shares. `place` returns where the turn stands, such as a superstep.

    `before` has the messages before the turn.
    """

    def __init__(
        self, turn: FrameworkTurn, *, place: Callable[[], Any] = lambda: None, before: Sequence[Any] = ()
    ) -> None:
        self.turn = turn
        self.digests = MessageDigests(_dump_message, keys_of)
        self.digests.set_history(before)
        self.place = place
        self.changed_arguments: dict[str, Mapping[str, Any]] = {}  # by call: those that a person has approved instead

    @contextmanager
    def current(self) -> Iterator[None]:
        """Record the calls that are made in this context."""
        token = _recording.set(self)
        try:
            yield
        finally:
            _recording.reset(token)


def attach(agent: Any) -> None:
    """Add the middleware to an agent that runs inside another one or a workflow, once."""
    workflow = getattr(agent, "workflow", None)
    if workflow is not None:
        attach_all(workflow)
    known = list(getattr(agent, "middleware", None) or ())
    if hasattr(agent, "middleware") and not any(isinstance(item, JournaledChat) for item in known):
        agent.middleware = [*known, *middleware_of(agent)]


def attach_all(workflow: Any) -> None:
    """Add the middleware to the agents of a workflow, and of the workflows within it."""
    for agent in agents_of(workflow):
        attach(agent)


def find_tools(agents: Iterable[Any], given: Iterable[Any] = ()) -> KnownTools:
    """Return the tools of agents, of agents that they use as tools, and those that are `given` to a run."""
    known, waiting, seen = KnownTools(), list(agents), set[int]()
    listed = [*given]
    while waiting:
        agent = waiting.pop()
        if id(agent) in seen:
            continue
        seen.add(id(agent))
        if getattr(agent, "workflow", None) is not None:
            waiting += agents_of(agent.workflow)
        listed += (getattr(agent, "default_options", None) or {}).get("tools") or ()
        providers = getattr(agent, "context_providers", None) or ()
        if getattr(agent, "mcp_tools", None) or not all(
            isinstance(provider, HistoryProvider) for provider in providers
        ):
            known.is_complete = False  # servers and providers are asked during the turn
        while listed:
            tool = listed.pop()
            known.is_complete = known.is_complete and not hasattr(tool, "functions")  # of an MCP server
            known.add([getattr(tool, "name", None) or getattr(tool, "__name__", tool)])
            inner = _agent_of_tool(getattr(tool, "func", None))
            waiting += [] if inner is None else [inner]
    return known


def agents_of(workflow: Any) -> list[Any]:
    """Return the agents of a workflow, and of the workflows within it."""
    found = []
    for executor in workflow.get_executors_list():
        inner = getattr(executor, "workflow", None)
        found += agents_of(inner) if inner is not None else []
        agent = getattr(executor, "agent", None)
        found += [agent] if agent is not None else []
    return found


def middleware_of(agent: Any) -> list[Any]:
    return [JournaledChat(str(agent.name or agent.id)), JournaledFunction()]


# -- the model ---------------------------------------------------------------------------------------------------------


class JournaledChat(ChatMiddleware):
    """Gives the recorded answer to a request, or asks the model and records its answer."""

    def __init__(self, agent: str) -> None:
        self._agent = agent

    async def process(self, context: ChatContext, call_next: Callable[[], Awaitable[None]]) -> None:
        recording = _recording.get()
        if recording is None:
            await call_next()
            return
        request = _request(recording, context)
        if context.stream:
            updates = self._stream(recording.turn, request, context, call_next)
            context.result = ResponseStream(updates, finalizer=ChatResponse.from_updates)
            return

        async def ask() -> dict[str, Any]:
            await call_next()
            return dump(context.result)

        context.result = await recording.turn.call_model(self._agent, request, ask, load_response)

    async def _stream(
        self, turn: FrameworkTurn, request: Any, context: ChatContext, call_next: Callable[[], Awaitable[None]]
    ) -> AsyncIterator[ChatResponseUpdate]:
        updates: list[ChatResponseUpdate] = []

        async def ask() -> AsyncIterator[tuple[ChatResponseUpdate, bool]]:
            """Yield updates, each with whether it is the last one."""
            await call_next()
            waiting = None
            async for update in context.result:
                if waiting is not None:
                    yield waiting, False
                waiting = update
            if waiting is not None:
                yield waiting, True

        def collect(event: tuple[ChatResponseUpdate, bool]) -> dict[str, Any] | None:
            updates.append(event[0])
            return dump(ChatResponse.from_updates(updates)) if event[1] else None

        async for update, _ in turn.stream_model(self._agent, request, ask, collect, _replay):
            yield update


def dump(value: Any) -> dict[str, Any]:
    """Return an object of the framework as plain data, without fields that are empty."""
    return {name: item for name, item in value.to_dict().items() if item not in (None, {})}


def load_response(recorded: Mapping[str, Any]) -> ChatResponse:
    response: ChatResponse = ChatResponse.from_dict(dict(recorded))
    check_messages(response.messages)
    if not isinstance(response.usage_details, Mapping | None):
        raise CorruptError("the usage_details of a recorded answer are none")
    return response


def _replay(recorded: Mapping[str, Any]) -> Iterator[tuple[ChatResponseUpdate, bool]]:
    """Yield the updates of a recorded answer: each message whole, where the model had streamed parts."""
    response = load_response(recorded)
    for message in response.messages:
        update = ChatResponseUpdate(
            contents=list(message.contents),
            role=message.role,
            author_name=message.author_name,
            message_id=message.message_id,
            response_id=response.response_id,
            conversation_id=response.conversation_id,
            model=response.model,
            created_at=response.created_at,
            finish_reason=response.finish_reason,
        )
        yield update, False
    if response.usage_details:
        yield ChatResponseUpdate(contents=[Content.from_usage(response.usage_details)], role="assistant"), True


def _request(recording: TurnRecording, context: ChatContext) -> dict[str, Any]:
    """Return what identifies a request. Instructions are left out: they often have the time of day."""
    options = dict(context.options or {})
    choice, output = options.get("tool_choice"), options.get("response_format")
    messages = [message for message in context.messages if message.role != "system"]
    return {
        "messages": recording.digests.digest(messages),
        "tools": sorted(str(getattr(tool, "name", tool)) for tool in options.get("tools") or ()),
        "tool_choice": choice if isinstance(choice, str) else str(choice),
        "output": output.__name__ if isinstance(output, type) else output,
        "conversation_id": options.get("conversation_id"),
        "place": recording.place(),
    }


def _dump_message(message: Any) -> str:
    return json.dumps(_without_ids(message.to_dict()), sort_keys=True, default=str)


def _without_ids(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_ids(item) for name, item in value.items() if name not in _IDS and item not in (None, {})}
    return [_without_ids(item) for item in value] if isinstance(value, list) else value


# -- tools -------------------------------------------------------------------------------------------------------------


class _RecordedFailure(Exception):  # noqa: N818 - the text of a tool's own error, for the framework to tell the model
    pass


class JournaledFunction(FunctionMiddleware):
    """Gives the recorded result of a tool call, or makes the call as the tool was declared."""

    async def process(self, context: FunctionInvocationContext, call_next: Callable[[], Awaitable[None]]) -> None:
        recording = _recording.get()
        tool = context.function
        function = getattr(tool, "func", None)
        if recording is None or self._is_agent(recording, tool, function):
            await call_next()
            return
        call_id = context.metadata.get("call_id")
        given = context.arguments
        arguments = dict(given) if isinstance(given, Mapping) else given.model_dump()
        changed = recording.changed_arguments.get(call_id or "", arguments)
        if dict(changed) != arguments:
            context.arguments = dict(changed)
            await call_next()  # the framework does not make the call, and asks again with these arguments
            return
        declared = recording.turn.find_effect(tool.name, function)
        is_effect = declared is not None and declared.kind != EffectKind.READ

        async def call(**kept: Any) -> Any:
            if kept != arguments:  # a person has approved others
                context.arguments = kept
            try:
                await call_next()
            except (MiddlewareException, UserInputRequiredException):
                raise
            except Exception as error:
                if is_effect:
                    raise  # the ledger must see it
                return _dump_failure(error)
            return _dump_result(context.result)

        context.result = await recording.turn.call_tool(
            tool.name,
            arguments,
            call,
            call_id=call_id,
            function=function,
            failed=_dump_failure,
            required=tool.parameters().get("required", ()),
            load=_load_result,
        )
        if isinstance(context.result, _RecordedFailure):
            raise context.result

    def _is_agent(self, recording: TurnRecording, tool: Any, function: Any) -> bool:
        """Return whether a tool runs an agent, whose own calls are recorded then."""
        agent = _agent_of_tool(function)
        if agent is None or recording.turn.find_effect(tool.name, function) is not None:
            return False  # or the user wants it recorded as one call
        attach(agent)
        return True


def _agent_of_tool(function: Any) -> Any:
    """Return the agent that the function of `agent.as_tool(...)` runs; None of another function."""
    if not str(getattr(function, "__qualname__", "")).endswith(_AGENT_TOOL):
        return None
    names = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    return names["self"].cell_contents if "self" in names else None


def _dump_result(result: Any) -> Any:
    """Return a result as plain data: a text, or the contents of a list."""
    if isinstance(result, list) and all(isinstance(item, Content) for item in result):
        if len(result) == 1 and result[0].type == "text":
            return str(result[0].text)
        return [dump(item) for item in result]
    return str(result)


def _load_result(recorded: Any) -> Any:
    if isinstance(recorded, Mapping):
        return _RecordedFailure(recorded["failure"])
    return recorded if isinstance(recorded, str) else [Content.from_dict(dict(item)) for item in recorded]


def _dump_failure(error: Exception) -> dict[str, str]:
    return {"failure": str(error)}
