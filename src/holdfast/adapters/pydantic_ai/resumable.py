"""`resumable(agent, ...)`: an agent of Pydantic AI whose turns continue after a crash."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from pydantic_ai.agent import AbstractAgent, AgentRun, AgentRunResult
from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart, tool_return_ta
from pydantic_ai.result import StreamedRunResult

from holdfast.adapters.base.digest import digest
from holdfast.adapters.base.install import warn_if_untested
from holdfast.adapters.base.known_tools import KnownTools
from holdfast.adapters.base.loaded_list import LoadedList
from holdfast.adapters.base.loop_runner import LoopRunner
from holdfast.adapters.base.session import ResumableSession, TurnEnd
from holdfast.adapters.pydantic_ai.durability import HoldfastDurability, find_functions, recorded_into
from holdfast.adapters.pydantic_ai.messages import dump_messages, load_messages
from holdfast.adapters.pydantic_ai.result import dump_result, load_result
from holdfast.errors import UsageError
from holdfast.model.framework import Framework
from holdfast.model.tool_effect import Effect

warn_if_untested("pydantic-ai-slim", "2.66", "3")

ENTRY = "run"  # of all entry points: a turn that was begun by one may be finished by another
_OF_THE_STORE = ("message_history", "conversation", "conversation_id", "run_id")


def resumable(
    target: AbstractAgent[Any, Any],
    *,
    session_id: str,
    store: Any = None,
    agent_id: str | None = None,
    workspace: str | os.PathLike[str] | None = None,
    tools: Mapping[str, Effect | str] | None = None,
) -> ResumablePydanticAgent:
    """Return the agent with `run`, `run_sync`, `run_stream` and `iter`, which continue after a crash.

    `store` is a `Client`, a URL, or None for `.holdfast/store.db`. `tools` declares what tools do, by
    their names.
    """
    return ResumablePydanticAgent(
        target, session_id=session_id, store=store, agent_id=agent_id, workspace=workspace, tools=tools
    )


class ResumablePydanticAgent:
    """An agent and its conversation in a store. The entry points are those of the `Agent`.

    `turn` identifies a turn, for example by the id of the message that it answers. Without it, a
    turn is known by its prompt, and by how many turns with that prompt this process has finished.
    The other options are the agent's, without the message history: the store has the conversation.
    """

    def __init__(
        self, agent: AbstractAgent[Any, Any], *, session_id: str, agent_id: str | None, **options: Any
    ) -> None:
        if not isinstance(agent, AbstractAgent):
            raise UsageError(f"resumable() takes an Agent of Pydantic AI, not a {type(agent).__name__}")
        self.agent = agent
        self._session = ResumableSession(
            Framework.PYDANTIC_AI, session_id=session_id, agent_id=agent_id or agent.name, **options
        )
        self._loop = LoopRunner()
        self._messages = LoadedList(load_messages)

    # -- entry points --------------------------------------------------------------------------------------------------

    async def run(self, user_prompt: Any = None, *, turn: str | None = None, **options: Any) -> AgentRunResult[Any]:
        """Run a turn, or continue it; a finished one returns its recorded result."""
        async with self._take(user_prompt, turn, options) as taken:
            if taken.result is None:
                taken.result = await self.agent.run(user_prompt, **taken.options)
        return taken.result

    def run_sync(self, user_prompt: Any = None, *, turn: str | None = None, **options: Any) -> AgentRunResult[Any]:
        """`run` for programs without an event loop."""
        return self._loop.run(self.run(user_prompt, turn=turn, **options))

    @asynccontextmanager
    async def run_stream(
        self, user_prompt: Any = None, *, turn: str | None = None, **options: Any
    ) -> AsyncIterator[StreamedRunResult[Any, Any]]:
        """Run a turn, or continue it, and stream its output: `async with agent.run_stream(prompt) as result:`.

        A stream that is not read to its end leaves the turn unfinished: the same call continues it.
        """
        async with self._take(user_prompt, turn, options, is_streamed=True) as taken:
            known = taken.result
            if known is not None:
                yield StreamedRunResult(known.all_messages(), known._new_message_index, run_result=known)
                return
            async with self.agent.run_stream(user_prompt, **taken.options) as stream:
                yield stream
            if stream.is_complete:
                taken.result = stream.result

    @asynccontextmanager
    async def iter(
        self, user_prompt: Any = None, *, turn: str | None = None, **options: Any
    ) -> AsyncIterator[AgentRun[Any, Any]]:
        """Run a turn, or continue it, node by node: `async with agent.iter(prompt) as agent_run:`.

        The run of a finished turn has no nodes, only its result.
        """
        async with self._take(user_prompt, turn, options) as taken:
            async with self.agent.iter(user_prompt, **taken.options) as agent_run:
                if taken.result is not None:
                    agent_run.ctx.deps.new_message_index = taken.result._new_message_index
                    agent_run.ctx.state.usage = taken.result.usage
                yield agent_run
            taken.result = agent_run.result

    # -- a turn --------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _take(
        self, user_prompt: Any, turn: str | None, options: Mapping[str, Any], *, is_streamed: bool = False
    ) -> AsyncIterator[_TurnCall]:
        _refuse_options(options)
        self._session.check_tools(lambda: self._find_tools(options.get("toolsets")))
        given = _simplify_input(user_prompt, options.get("deferred_tool_results"))
        session = self._session
        durability = HoldfastDurability().for_stream() if is_streamed else HoldfastDurability()
        async with session.open_turn(ENTRY, given, turn) as opened:
            if opened.turn is None:
                kind = options.get("output_type") or self.agent.output_type
                with session.guard_state():
                    result = load_result(opened.recorded, load_messages(session.state.get("messages", [])), kind)
                chosen = _with_capability(options, durability.with_result(result))
                yield _TurnCall({**chosen, "message_history": result.all_messages()}, result)
                return
            _refuse_conversation(opened.turn.state, session.session_id)
            history = opened.turn.load_list("messages", self._messages)
            durability.set_history(history)
            about = {
                "message_history": history,
                "conversation_id": session.session_id,
                "run_id": digest([session.session_id, opened.turn.key]),
            }
            taken = _TurnCall({**_with_capability(options, durability), **about})
            with recorded_into(opened.turn):
                yield taken
            if taken.result is not None:
                opened.end = _end(history, taken.result)

    def _find_tools(self, toolsets: Sequence[Any] | None) -> KnownTools:
        """Return the agent's tools. A sub-agent that a tool runs, a toolset or an MCP server may have others."""
        return KnownTools(set(find_functions([*self.agent.toolsets, *(toolsets or ())])), is_complete=False)


@dataclass(slots=True)
class _TurnCall:
    """A turn that is taken: what the agent is called with, and its result."""

    options: dict[str, Any]
    result: AgentRunResult[Any] | None = None


def _end(history: Sequence[ModelMessage], result: AgentRunResult[Any]) -> TurnEnd:
    """Return the end of a turn; all messages are dumped only if it has rewritten the history."""
    messages, known = result.all_messages(), len(history)
    is_kept = len(messages) >= known and all(a is b or a == b for a, b in zip(history, messages, strict=False))
    if is_kept:
        return TurnEnd(result, dump_result(result), {}, appended={"messages": dump_messages(messages[known:])})
    return TurnEnd(result, dump_result(result), {"messages": dump_messages(messages)})


def _with_capability(options: Mapping[str, Any], capability: HoldfastDurability) -> dict[str, Any]:
    return {**options, "capabilities": [*(options.get("capabilities") or ()), capability]}


def _simplify_input(user_prompt: Any, results: Any) -> Any:
    """Return the input of a turn as plain data, as the caller wrote it."""
    if user_prompt is None or isinstance(user_prompt, str):
        given = user_prompt
    else:
        [message] = dump_messages([ModelRequest(parts=[UserPromptPart(content=user_prompt)])])
        given = message["parts"][0]["content"]
    if results is None:
        return given
    return {"prompt": given, "deferred_tool_results": tool_return_ta.dump_python(results, mode="json", fallback=str)}


def _refuse_conversation(state: Mapping[str, Any], session_id: str) -> None:
    if "ids" in state:
        raise UsageError(
            f"session {session_id!r:.60} is a conversation of HoldfastConversationStore, which loads and saves it. "
            "Give the resumable agent a session of its own: fork this one, or choose another session_id"
        )


def _refuse_options(options: Mapping[str, Any]) -> None:
    given = next((name for name in _OF_THE_STORE if options.get(name) is not None), None)
    if given is not None:
        raise UsageError(f"{given}= can't be given: the store has the conversation of a resumable agent. Leave it out")
