"""`resumable(agent, ...)`: an agent or workflow of agent-framework whose turns continue after a crash."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agent_framework import (
    Agent,
    AgentResponse,
    AgentResponseUpdate,
    AgentSession,
    Message,
    RawAgent,
    ResponseStream,
    Workflow,
)

from holdfast.adapters.agent_framework.middleware import TurnRecording, dump, find_tools, middleware_of
from holdfast.adapters.agent_framework.people import arguments_of, ask_about_calls
from holdfast.adapters.agent_framework.stored_session import MESSAGES, StoredSession, load_messages, stored_messages
from holdfast.adapters.agent_framework.workflow import ResumableWorkflow
from holdfast.adapters.base.event_stream import Emit, stream_turn
from holdfast.adapters.base.install import warn_if_untested
from holdfast.adapters.base.loaded_list import LoadedList
from holdfast.adapters.base.session import ResumableSession, TurnEnd
from holdfast.adapters.base.turn import FrameworkTurn
from holdfast.errors import UsageError
from holdfast.model.framework import Framework
from holdfast.model.tool_effect import Effect

warn_if_untested("agent-framework-core", "1.23", "2")

ENTRY = "run"


def resumable(
    target: Agent | Workflow,
    *,
    session_id: str,
    store: Any = None,
    agent_id: str | None = None,
    workspace: str | os.PathLike[str] | None = None,
    tools: Mapping[str, Effect | str] | None = None,
) -> Any:
    """Return the agent or workflow with a `run` that continues after a crash, streamed or not.

    `store` is a `Client`, a URL, or None for `.holdfast/store.db`. `tools` declares what tools do, by
    their names.
    """
    options = {"session_id": session_id, "store": store, "agent_id": agent_id, "workspace": workspace, "tools": tools}
    if isinstance(target, Workflow):
        return ResumableWorkflow(target, **options)
    if isinstance(target, RawAgent):
        return ResumableChatAgent(target, **options)
    raise UsageError(f"resumable() takes an Agent or a Workflow of agent-framework, not a {type(target).__name__}")


class ResumableChatAgent:
    """An agent and its conversation in a store. `run` is the agent's own.

    `turn` identifies a turn, for example by the id of the message that it answers. Without it, a
    turn is known by its messages, and by how many turns with them this process has finished. The
    other options are the agent's, without `session`: the store has the conversation.
    """

    def __init__(self, agent: RawAgent, *, session_id: str, agent_id: str | None = None, **options: Any) -> None:
        self.agent = agent
        self._messages = LoadedList(load_messages)
        self._session = ResumableSession(
            Framework.AGENT_FRAMEWORK, session_id=session_id, agent_id=agent_id or agent.name or agent.id, **options
        )

    def run(self, messages: Any = None, *, stream: bool = False, turn: str | None = None, **options: Any) -> Any:
        """Run a turn, or continue it; a finished one returns its recorded response.

        Returns an awaitable, or with `stream=True` a `ResponseStream`.
        """
        if options.get("session") is not None:
            raise UsageError(
                "session= can't be given: the store has the conversation of a resumable agent. Leave it out"
            )
        given = _messages_of(messages)
        if not stream:
            return self._run(given, turn, options)
        found: list[AgentResponse] = []

        async def take(emit: Emit) -> None:
            response, is_streamed = await self._take(given, turn, options, emit)
            for message in () if is_streamed else response.messages:  # of a recorded response
                emit(AgentResponseUpdate(contents=message.contents, role=message.role, author_name=message.author_name))
            found.append(response)

        return ResponseStream(stream_turn(take), finalizer=lambda _: found[0])

    async def _run(self, given: list[Message], turn: str | None, options: Mapping[str, Any]) -> AgentResponse:
        response, _ = await self._take(given, turn, options, None)
        return response

    # -- a turn --------------------------------------------------------------------------------------------------------

    async def _take(
        self, given: list[Message], turn: str | None, options: Mapping[str, Any], emit: Callable[[Any], None] | None
    ) -> tuple[AgentResponse, bool]:
        """Take a turn; return its response, and whether its updates were emitted."""
        is_streamed = False
        more = options.get("tools") or (options.get("options") or {}).get("tools") or ()
        listed = list(more) if isinstance(more, Sequence) else [more]
        self._session.check_tools(lambda: find_tools([self.agent], listed))

        async def body(turn_: FrameworkTurn) -> TurnEnd:
            nonlocal is_streamed
            is_streamed = emit is not None
            with self._session.guard_state():
                stored = StoredSession(
                    turn_.state,
                    self._session.session_id,
                    stored=turn_.stored_list(MESSAGES),
                    loaded=turn_.load_list(MESSAGES, self._messages),
                )
            session, recording = stored.session, TurnRecording(turn_, before=stored.messages)
            with recording.current():
                response = await self._ask(given, session, options, emit)
                while response.user_input_requests:
                    answers = await _decide(recording, response.user_input_requests)
                    response = await self._ask(answers, session, options, emit)
            change = stored.dump()
            end = len(change.messages) + (len(turn_.stored_list(MESSAGES)) if change.appended else 0)
            recorded = dump_response(response, change.messages, end)
            return TurnEnd(response, recorded, change.state, appended=change.appended)

        def load(recorded: Mapping[str, Any]) -> AgentResponse:
            return load_response(recorded, self._session.state, options)

        plain = [_plain_message(message) for message in given]
        return await self._session.take_turn(ENTRY, _input_of(plain), turn, body, load), is_streamed

    async def _ask(
        self,
        given: list[Message],
        session: AgentSession,
        options: Mapping[str, Any],
        emit: Callable[[Any], None] | None,
    ) -> AgentResponse:
        middleware = [*(options.get("middleware") or ()), *middleware_of(self.agent)]
        chosen = {**options, "session": session, "middleware": middleware}
        if emit is None:
            return await self.agent.run(given, **chosen)
        stream = self.agent.run(given, stream=True, **chosen)
        async for update in stream:
            emit(update)
        return await stream.get_final_response()


async def _decide(recording: TurnRecording, requests: Sequence[Any]) -> list[Message]:
    """Ask people about calls that wait for approval; return the messages with their decisions."""
    other = next((request for request in requests if request.type != "function_approval_request"), None)
    if other is not None:
        raise UsageError(
            f"the agent asks for input of the type {other.type!r}, which can't wait in a turn. Use a workflow with "
            "request_info"
        )
    asked = [
        (request.function_call.name, arguments_of(request.function_call), request.function_call.call_id)
        for request in requests
    ]
    answers = await ask_about_calls(recording, asked)
    contents = [item.to_function_approval_response(answer) for item, answer in zip(requests, answers, strict=True)]
    return [Message("user", contents)]


# -- plain data --------------------------------------------------------------------------------------------------------


def dump_response(response: AgentResponse, added: Sequence[Any], end: int) -> dict[str, Any]:
    """Return a response as plain data. The turn `added` messages to a conversation that has `end` now.

    Messages that end the conversation are recorded by their place in it.
    """
    fields = dump(response)
    count = len(response.messages)
    is_last = 0 < count <= len(added) and list(added[len(added) - count :]) == fields["messages"]
    return {**fields, "messages": None, "first": end - count, "count": count} if is_last else fields


def load_response(recorded: Mapping[str, Any], state: Mapping[str, Any], options: Mapping[str, Any]) -> AgentResponse:
    fields = dict(recorded)
    first, count = fields.pop("first", 0), fields.pop("count", 0)
    if fields.get("messages") is None:
        fields["messages"] = load_messages(stored_messages(state)[first : first + count])
    response = AgentResponse.from_dict(fields)
    chosen = (options.get("options") or {}).get("response_format")
    if chosen is not None:
        response._response_format = chosen
    return response


def _messages_of(messages: Any) -> list[Message]:
    if messages is None:
        return []
    listed = [messages] if isinstance(messages, str | Message) or not isinstance(messages, Sequence) else list(messages)
    return [item if isinstance(item, Message) else Message("user", [item]) for item in listed]


def _plain_message(message: Message) -> dict[str, Any]:
    return {name: value for name, value in dump(message).items() if name not in ("message_id", "type")}


def _input_of(messages: list[dict[str, Any]]) -> Any:
    """Return the input of a turn: the text alone, if the user said nothing else."""
    if len(messages) == 1 and messages[0].get("role") == "user":
        contents = messages[0].get("contents") or []
        if len(contents) == 1 and contents[0].get("type") == "text":
            return contents[0].get("text")
    return messages
