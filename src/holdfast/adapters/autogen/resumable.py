"""`resumable(team, ...)`: an agent or team of AutoGen whose turns continue after a crash."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.base import TaskResult
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, ModelClientStreamingChunkEvent, TextMessage
from autogen_agentchat.teams import BaseGroupChat
from autogen_core import CancellationToken

from holdfast.adapters.autogen.journal import TeamJournal
from holdfast.adapters.autogen.shared_messages import share_context
from holdfast.adapters.autogen.state import dump_message, load_messages, load_state, save_state
from holdfast.adapters.base.event_stream import Emit, stream_turn
from holdfast.adapters.base.install import warn_if_untested
from holdfast.adapters.base.session import ResumableSession, TurnEnd
from holdfast.adapters.base.shared_target import FirstStates, hold
from holdfast.adapters.base.turn import FrameworkTurn
from holdfast.errors import UsageError
from holdfast.model.framework import Framework
from holdfast.model.tool_effect import Effect

warn_if_untested("autogen-agentchat", "0.7.5", "0.8")

ENTRY = "run"  # of both entry points: a turn that was begun by one may be finished by the other
_first: FirstStates[Mapping[str, Any]] = FirstStates()  # of targets, and of agents that are tools of theirs
_VARIES = ("id", "created_at")  # fields of a message that differ in every life


def resumable(
    target: BaseChatAgent | BaseGroupChat,
    *,
    session_id: str,
    store: Any = None,
    agent_id: str | None = None,
    workspace: str | os.PathLike[str] | None = None,
    tools: Mapping[str, Effect | str] | None = None,
) -> ResumableTarget:
    """Return the agent or team with `run` and `run_stream`, which continue after a crash.

    `store` is a `Client`, a URL, or None for `.holdfast/store.db`. `tools` declares what tools do, by
    their names.
    """
    return ResumableTarget(
        target, session_id=session_id, store=store, agent_id=agent_id, workspace=workspace, tools=tools
    )


class ResumableTarget:
    """An agent or team, and its conversation in a store. The entry points are AutoGen's own.

    `turn` identifies a turn, for example by the id of the message that it answers. Without it, a
    turn is known by its task, and by how many turns with that task this process has finished.
    """

    def __init__(self, target: Any, *, session_id: str, agent_id: str | None = None, **options: Any) -> None:
        if not isinstance(target, BaseChatAgent | BaseGroupChat):
            raise UsageError(f"resumable() takes an agent or a team of AutoGen, not a {type(target).__name__}")
        self.target = target
        self._journal = TeamJournal(target)
        self._session = ResumableSession(
            Framework.AUTOGEN, session_id=session_id, agent_id=agent_id or target.name, **options
        )

    # -- entry points --------------------------------------------------------------------------------------------------

    async def run(
        self,
        *,
        task: str | BaseChatMessage | Sequence[BaseChatMessage] | None = None,
        turn: str | None = None,
        cancellation_token: CancellationToken | None = None,
        output_task_messages: bool = True,
    ) -> TaskResult:
        """Run a turn, or continue it; a finished one returns its recorded result."""
        messages = _messages_of(task)
        result, _ = await self._take(task, messages, turn, cancellation_token, lambda _: None)
        return result if output_task_messages else _without_task(result, messages)

    async def run_stream(
        self,
        *,
        task: str | BaseChatMessage | Sequence[BaseChatMessage] | None = None,
        turn: str | None = None,
        cancellation_token: CancellationToken | None = None,
        output_task_messages: bool = True,
    ) -> AsyncGenerator[BaseAgentEvent | BaseChatMessage | TaskResult, None]:
        """Run a turn, or continue it, and yield its messages and its result."""
        messages = _messages_of(task)
        given = {message.id for message in messages}

        async def take(emit: Emit) -> None:
            def emit_some(event: Any) -> None:
                if output_task_messages or event.id not in given:
                    emit(event)

            result, is_streamed = await self._take(task, messages, turn, cancellation_token, emit_some)
            if not output_task_messages:
                result = _without_task(result, messages)
            for message in () if is_streamed else result.messages:  # of a recorded result
                emit(message)
            emit(result)

        async for event in stream_turn(take):
            yield event

    # -- a turn --------------------------------------------------------------------------------------------------------

    async def _take(
        self,
        task: Any,
        messages: list[BaseChatMessage],
        turn: str | None,
        cancellation_token: CancellationToken | None,
        emit: Callable[[Any], None],
    ) -> tuple[TaskResult, bool]:
        """Take a turn; return its result, and whether its messages were emitted."""
        is_streamed = False
        self._session.check_tools(self._journal.find_tools)

        async def body(turn_: FrameworkTurn) -> TurnEnd:
            nonlocal is_streamed
            is_streamed = True
            with self._journal.recording(turn_):
                with self._session.guard_state():
                    await self._load(turn_)
                result = await self._follow(messages, cancellation_token, emit)
                added = [dump_message(message) for message in result.messages]
                state = await save_state(self._journal, turn_.state.get("messages", []), added)
                first = len(turn_.stored_list("messages"))
                about = {"first": first, "count": len(added), "stop_reason": result.stop_reason}
                return TurnEnd(result, about, state, {"messages": added})

        def load(recorded: Mapping[str, Any]) -> TaskResult:
            first, count = recorded["first"], recorded["count"]
            found = load_messages(self.target, self._session.state["messages"][first : first + count])
            return TaskResult(messages=found, stop_reason=recorded["stop_reason"])

        self._journal.find_agents()
        with hold(self._journal.members, "agent or team"):
            result = await self._session.take_turn(ENTRY, _simplify_task(task), turn, body, load)
        return result, is_streamed

    async def _load(self, turn: FrameworkTurn) -> None:
        """Bring the target to where the last finished turn left it, whatever became of it since."""
        first = _first.find(self.target)
        if first is None:
            now = {"messages": [], **await save_state(self._journal, [], [])}
            for name, saved in now.get("beside", {}).items():
                now["beside"][name] = _first.take(self._journal.extra_states[name], partial(dict, saved))
            first = _first.take(self.target, partial(dict, now))
        state = turn.state if "native" in turn.state else first
        if isinstance(self.target, BaseGroupChat):
            state = share_context(state, first)
        await load_state(self._journal, state)

    async def _follow(
        self, messages: list[BaseChatMessage], outer: CancellationToken | None, emit: Callable[[Any], None]
    ) -> TaskResult:
        """Run the target to its end. A caller that cancels waits until no call is under way any more."""
        token = CancellationToken() if outer is None else outer
        task = asyncio.create_task(self._consume(messages, token, emit))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._journal.is_stopped = True
            token.cancel()
            with suppress(Exception, asyncio.CancelledError):
                await task
            raise

    async def _consume(
        self, messages: list[BaseChatMessage], token: CancellationToken, emit: Callable[[Any], None]
    ) -> TaskResult:
        result = None
        async for event in self.target.run_stream(task=messages or None, cancellation_token=token):
            turn = self._journal.turn
            if turn is None or turn.ended_by is not None:
                continue  # what it says now is about the end of the turn
            if isinstance(event, TaskResult):
                result = event
            else:
                emit(event)
        if result is None:
            return TaskResult(messages=[])  # the turn was ended by an error, which the caller gets
        kept = [message for message in result.messages if not isinstance(message, ModelClientStreamingChunkEvent)]
        return TaskResult(messages=kept, stop_reason=result.stop_reason)


def _messages_of(task: Any) -> list[BaseChatMessage]:
    """Return the task as AutoGen's messages."""
    if task is None:
        return []
    if isinstance(task, str):
        return [TextMessage(content=task, source="user")]
    messages = [task] if isinstance(task, BaseChatMessage) else list(task)
    if not messages or not all(isinstance(message, BaseChatMessage) for message in messages):
        raise UsageError(f"task is {task!r:.60}: it must be a text, a chat message, or a list of chat messages")
    return messages


def _simplify_task(task: Any) -> Any:
    """Return the task as plain data that is the same in every life."""
    if task is None or isinstance(task, str):
        return task
    dumped = [dump_message(message) for message in _messages_of(task)]
    return [{name: value for name, value in item.items() if name not in _VARIES} for item in dumped]


def _without_task(result: TaskResult, messages: list[BaseChatMessage]) -> TaskResult:
    return TaskResult(messages=result.messages[len(messages) :], stop_reason=result.stop_reason)
