"""`resumable(agent, ...)`: an agent of AG2 whose turns continue after a crash."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

from ag2 import Agent, AgentReply, MemoryStream, ResponseSchema
from ag2.context import ConversationContext, Stream
from ag2.events import BaseEvent, HumanInputRequest, Input, ModelResponse, TextInput
from ag2.history import MemoryStorage
from ag2.types import omit

from holdfast.adapters.ag2.agents import AgentInstallation
from holdfast.adapters.ag2.conversation import EventLog
from holdfast.adapters.ag2.events import dump_event, dump_value, load_event
from holdfast.adapters.ag2.journal import TurnInterruptedError, TurnJournal, copy_variables
from holdfast.adapters.ag2.loaded_events import LoadedEvents
from holdfast.adapters.base.install import warn_if_untested
from holdfast.adapters.base.session import OpenTurn, ResumableSession, TurnEnd
from holdfast.adapters.base.turn import FrameworkTurn
from holdfast.errors import UsageError
from holdfast.model.framework import Framework
from holdfast.model.tool_effect import Effect

warn_if_untested("ag2", "1.2.1", "2")

ENTRY = "ask"  # of all entry points: a turn that was begun by one may be finished by another


def resumable(
    target: Agent[Any],
    *,
    session_id: str,
    store: Any = None,
    agent_id: str | None = None,
    workspace: str | os.PathLike[str] | None = None,
    tools: Mapping[str, Effect | str] | None = None,
) -> ResumableAG2Agent:
    """Return the agent with `ask` and `run`, which continue after a crash.

    `store` is a `Client`, a URL, or None for `.holdfast/store.db`. `tools` declares what tools do, by
    their names.
    """
    return ResumableAG2Agent(
        target, session_id=session_id, store=store, agent_id=agent_id, workspace=workspace, tools=tools
    )


class ResumableAG2Agent:
    """An agent and its conversation in a store. The entry points are those of the `Agent`.

    `turn` identifies a turn, for example by the id of the message that it answers. Without it, a
    turn is known by its messages, and by how many turns with them this process has finished.
    """

    def __init__(self, agent: Agent[Any], *, session_id: str, agent_id: str | None = None, **options: Any) -> None:
        if not isinstance(agent, Agent):
            raise UsageError(f"resumable() takes an Agent of AG2, not a {type(agent).__name__}")
        self.agent = agent
        self.session = ResumableSession(
            Framework.AG2, session_id=session_id, agent_id=agent_id or agent.name, **options
        )
        self._events = LoadedEvents()
        self.stream = MemoryStream()  # of all turns, as in AG2 the turns of one conversation share theirs

    async def ask(
        self, *msg: Any, turn: str | None = None, stream: Stream | None = None, **options: Any
    ) -> ResumableReply:
        """Run a turn, or continue it; a finished one returns its recorded reply.

        The options are those of `Agent.ask`. A `stream` is for its subscribers: its history becomes
        that of the session.
        """
        async with self.run(*msg, turn=turn, stream=stream, **options) as run:
            return await run.result()

    def run(self, *msg: Any, turn: str | None = None, stream: Stream | None = None, **options: Any) -> ResumableRun:
        """`Agent.run`: open a turn that can be watched, `async with agent.run("Hello!") as run:`."""
        return ResumableRun(self, msg, turn, stream or self.stream, options)

    # -- the conversation ----------------------------------------------------------------------------------------------

    def load_log(self, turn: FrameworkTurn | None) -> EventLog:
        """Return the conversation as the last finished turn left it."""
        with self.session.guard_state():
            if turn is None:
                return EventLog(self.session.state)
            return EventLog(turn.state, turn.load_list("messages", self._events))


class ResumableRun:
    """AG2's `AgentRun` as a turn of a session: `await run.result()` returns the reply.

    A turn whose result is not awaited stays unfinished: the same call continues it.
    """

    def __init__(
        self, owner: ResumableAG2Agent, msg: tuple[Any, ...], turn: str | None, stream: Stream, options: dict[str, Any]
    ) -> None:
        self.stream = stream
        self._owner = owner
        self._msg = msg
        self._turn = turn
        self._options = options
        self._opened = OpenTurn()
        self._run: Any = None
        self._log: EventLog | None = None
        self._before: dict[str, Any] = {}  # the variables; tools may change them in their places
        self._reply: ResumableReply | None = None
        self._stack = AsyncExitStack()

    def enqueue(self, *content: Any) -> None:
        """Append a message to the inbox of the turn, as `AgentRun.enqueue` does."""
        if self._run is None:
            self.stream.enqueue(*content)
        else:
            self._run.enqueue(*content)

    def start(self) -> None:
        """Run the turn in the background until `result` is awaited."""
        if self._run is not None:
            self._run.start()

    async def result(self) -> ResumableReply:
        """Run the turn to its end, and return its reply; that of a finished turn is the recorded one."""
        if self._reply is None:
            if self._run is None:
                raise RuntimeError("the turn is not open: use `async with agent.run(...) as run:`")
            try:
                reply = await self._run.result()
            except TurnInterruptedError:
                if self._opened.turn is not None and self._opened.turn.ended_by is not None:
                    raise self._opened.turn.ended_by from None
                raise
            self._reply = ResumableReply(self._owner, self._options, reply.response, reply.context)
        return self._reply

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            owner, given = self._owner, _simplify_input(self._msg)
            tools = list(self._options.get("tools") or ())
            installed = AgentInstallation(owner.agent, tools)
            owner.session.check_tools(lambda: installed.known)
            self._opened = await stack.enter_async_context(owner.session.open_turn(ENTRY, given, self._turn))
            turn = self._opened.turn
            log = owner.load_log(turn)
            await _fill(self.stream, log, is_own=self.stream is owner.stream)
            if turn is None:
                with owner.session.guard_state():
                    self._reply = self._load(log, self._opened.recorded)
            else:
                self._log, self._before = log, copy_variables(self._variables())
                options = {**self._options, "stream": self.stream, "tools": tools}
                asks_people = not _has_hook(owner.agent, options)
                if asks_people:
                    options["hitl_hook"] = _wait_for_person
                stack.enter_context(TurnJournal(turn, log, installed.sources, asks_people=asks_people).current())
                stack.push_async_exit(self._finish)
                self._run = await stack.enter_async_context(owner.agent.run(*self._msg, **options))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    async def _finish(self, kind: type[BaseException] | None, *_: Any) -> None:
        """Set the end of the turn, if it has a result: the conversation, and where the response is in it."""
        log, reply, turn = self._log, self._reply, self._opened.turn
        if log is None or turn is None:
            return
        if kind is not None or reply is None:
            await self.stream.history.replace(log.history)  # the turn will send its events again
            return
        log.extend(list(await self.stream.history.get_events()))
        variables = reply.context.variables
        kept = {name: value for name, value in variables.items() if turn.is_storable(value)}
        place = log.place_of(reply.response)
        recorded: dict[str, Any] = {"response": dump_event(reply.response) if place is None else place}
        if variables != self._before:
            recorded |= {"variables": kept, "given_again": [name for name in variables if name not in kept]}
        self._opened.end = TurnEnd(reply, recorded, log.window, {"messages": log.added})

    def _load(self, log: EventLog, recorded: Mapping[str, Any]) -> ResumableReply:
        agent, variables = self._owner.agent, self._variables()
        if "variables" in recorded:
            variables = {name: variables.get(name) for name in recorded["given_again"]} | recorded["variables"]
        context = ConversationContext(
            self.stream,
            prompt=list(self._options.get("prompt") or ()),
            dependencies={**agent.dependencies, **(self._options.get("dependencies") or {})},
            variables=variables,
            dependency_provider=agent.dependency_provider,
        )
        place = recorded["response"]
        response: Any = log.event_at(place) if isinstance(place, int) else load_event(place)
        return ResumableReply(self._owner, self._options, response, context)

    def _variables(self) -> dict[str, Any]:
        """Return the variables that the turn begins with."""
        return {**self._owner.agent.variables, **(self._options.get("variables") or {})}


class ResumableReply(AgentReply[Any, Any]):
    """AG2's reply. `ask` and `run` continue the conversation of the session, as the next turn."""

    def __init__(
        self,
        owner: ResumableAG2Agent,
        options: Mapping[str, Any],
        response: ModelResponse,
        context: ConversationContext,
    ) -> None:
        schema = options.get("response_schema", omit)
        super().__init__(
            response,
            context=context,
            client=None,  # type: ignore[arg-type]  # only `ask` and `run` use it, which are those of the session
            agent=owner.agent,
            provider=owner.agent.dependency_provider,
            response_schema=owner.agent.response_schema if schema is omit else ResponseSchema.ensure_schema(schema),
        )
        self._owner = owner
        self._config = options.get("config")

    async def ask(self, *msg: Any, turn: str | None = None, **options: Any) -> ResumableReply:
        """Ask the agent again, with the variables and dependencies of this reply."""
        async with self.run(*msg, turn=turn, **options) as run:
            return await run.result()

    # AG2's own method has no `turn`.
    def run(self, *msg: Any, turn: str | None = None, **options: Any) -> ResumableRun:  # type: ignore[override]
        """`ask` as a turn that can be watched."""
        context = self.context
        continued = {
            **options,
            "config": options.get("config") or self._config,
            "dependencies": {**context.dependencies, **(options.get("dependencies") or {})},
            "variables": {**context.variables, **(options.get("variables") or {})},
            "prompt": list(options.get("prompt") or context.prompt),
        }
        return self._owner.run(*msg, turn=turn, stream=context.stream, **continued)


async def _fill(stream: Stream, log: EventLog, *, is_own: bool) -> None:
    """Make the session's conversation the history of a stream; that of the user's own must not be lost."""
    if not isinstance(stream.history.storage, MemoryStorage):
        raise UsageError(
            f"the stream has a {type(stream.history.storage).__name__}, but the session stores the conversation. Give "
            "a MemoryStream without storage"
        )
    found = list(await stream.history.get_events())
    if not is_own and [*map(_identity, found)] != [*map(_identity, log.history[: len(found)])]:
        raise UsageError(
            "the stream has a history that is not this session's. Give an empty MemoryStream: its history becomes "
            "that of the session"
        )
    await stream.history.replace(log.history)


def _identity(event: BaseEvent) -> tuple[type, float]:
    return type(event), event.created_at


def _simplify_input(msg: tuple[Any, ...]) -> Any:
    """Return the input of a turn as plain data: the text alone, if the user said nothing else."""
    inputs = [Input.ensure_input(item) for item in msg]
    if len(inputs) == 1 and type(inputs[0]) is TextInput and not inputs[0].metadata:
        return inputs[0].content
    return [dump_value(input_) for input_ in inputs]


def _has_hook(agent: Agent[Any], options: Mapping[str, Any]) -> bool:
    """Return whether the user has a hook that answers questions; a plugin tells nothing of its own."""
    plugins = list(options.get("plugins") or ())
    return agent.has_hitl_hook or bool(options.get("hitl_hook")) or any(plugin._hitl_hook for plugin in plugins)


def _wait_for_person(event: HumanInputRequest) -> str:
    """Stand for a hook: AG2 asks none of its middleware without one. The journal's answers."""
    raise RuntimeError(f"nothing answers the question {event.content!r:.60}: the agent is not in a turn")
