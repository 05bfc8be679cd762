"""`resumable(target, ...)`: an agent or pipeline of Haystack whose turns continue after a crash."""

from __future__ import annotations

import asyncio
import copy
import inspect
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial, wraps
from typing import Any

from haystack import Pipeline
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage

from holdfast.adapters.base.install import warn_if_untested
from holdfast.adapters.base.loaded_list import LoadedList
from holdfast.adapters.base.session import ResumableSession, TurnEnd
from holdfast.adapters.base.unreadable import refuse_unreadable
from holdfast.adapters.haystack.conversation import HaystackConversation
from holdfast.adapters.haystack.journal import HaystackJournal
from holdfast.adapters.haystack.tool_names import find_tools
from holdfast.adapters.haystack.values import (
    dump_messages,
    dump_value,
    identify_message,
    identify_value,
    load_messages,
    load_value,
)
from holdfast.backends.bridge.step import run_inline
from holdfast.client.client import Client
from holdfast.errors import UsageError
from holdfast.model.effect import Done
from holdfast.model.framework import Framework
from holdfast.model.tool_effect import Effect, declared_effects

warn_if_untested("haystack-ai", "3.4", "4")

ENTRY = "run"  # of all entry points: a turn that was begun by one may be finished by another
Call = Callable[[HaystackJournal], Any]


def resumable(
    target: Any,
    *,
    session_id: str,
    store: Any = None,
    agent_id: str | None = None,
    workspace: str | os.PathLike[str] | None = None,
    tools: Mapping[str, Effect | str] | None = None,
) -> Any:
    """Return the agent or pipeline with its own entry points, which continue after a crash.

    `store` is a URL, or None for `.holdfast/store.db`. It may be a client: a `SyncClient` for `run`, a
    `Client` for `run_async` and `stream`. `tools` declares what tools do, by their names; and what
    components of a pipeline do, by theirs.
    """
    about = {"session_id": session_id, "store": store, "workspace": workspace, "tools": tools}
    if isinstance(target, Agent):
        return ResumableAgent(target, agent_id=agent_id or "agent", **about)
    if isinstance(target, Pipeline):
        return ResumablePipeline(target, agent_id=agent_id or "pipeline", **about)
    raise UsageError(f"resumable() takes an Agent or a Pipeline of Haystack, not a {type(target).__name__}")


class HaystackTurns:
    """The turns of one session, blocking or awaited."""

    def __init__(self, target: Any, *, agent_id: str, **about: Any) -> None:
        self.target = target
        self.agent_id = agent_id
        declared = declared_effects(about["tools"])
        self._about = {**about, "tools": {name: _with_objects(effect) for name, effect in declared.items()}}
        self._sessions: dict[bool, ResumableSession] = {}
        self._find_session(is_async=isinstance(about["store"], Client))

    async def take(
        self,
        is_async: bool,
        given: Any,
        turn: str | None,
        call: Call,
        load: Callable[[Mapping[str, Any], Any], Any],
        tools: Any = None,
    ) -> Any:
        """Run a turn and return its result. `load` makes that of the session's state, and what was recorded.

        `tools` are those of this run only.
        """
        session = self.open_session(is_async=is_async, tools=tools)
        async with session.open_turn(ENTRY, given, turn) as opened:
            if opened.turn is None:
                with session.guard_state():
                    return load(session.state, opened.recorded)
            loop = asyncio.get_running_loop() if is_async else None
            opened.end = await call(HaystackJournal(opened.turn, loop=loop))
        return opened.end.result

    def open_session(self, *, is_async: bool, tools: Any = None) -> ResumableSession:
        """Return the session for a turn; raise if a declared tool does not exist."""
        session = self._find_session(is_async=is_async)
        session.check_tools(lambda: find_tools(self.target, tools))
        return session

    def _find_session(self, *, is_async: bool) -> ResumableSession:
        if is_async not in self._sessions:
            about = {**self._about, "agent_id": self.agent_id, "is_async": is_async}
            self._sessions[is_async] = ResumableSession(Framework.HAYSTACK, **about)
        return self._sessions[is_async]


class ResumableAgent:
    """An agent and its conversation in a store: each run sees the messages of the earlier ones.

    `turn` identifies a run. Without it, a run is known by its messages and options, and by how many
    such runs this process has finished.
    """

    def __init__(self, agent: Agent, **about: Any) -> None:
        self.agent = agent
        self._turns = HaystackTurns(agent, **about)
        self._messages = LoadedList(load_messages)

    def run(
        self,
        messages: list[ChatMessage] | None = None,
        streaming_callback: Any = None,
        *,
        turn: str | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Run the agent, or continue; a finished run returns its recorded outputs."""
        taken: dict[str, Any] = run_inline(self._take(False, messages, streaming_callback, turn, options))
        return taken

    async def run_async(
        self,
        messages: list[ChatMessage] | None = None,
        streaming_callback: Any = None,
        *,
        turn: str | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """`run` in the running event loop."""
        taken: dict[str, Any] = await self._take(True, messages, streaming_callback, turn, options)
        return taken

    async def _take(
        self,
        is_async: bool,
        messages: list[ChatMessage] | None,
        streaming_callback: Any,
        turn: str | None,
        options: dict[str, Any],
    ) -> Any:
        async def call(journal: HaystackJournal) -> TurnEnd:
            turn_ = journal.turn
            known = turn_.load_list("messages", self._messages)
            with refuse_unreadable("the stored conversation"):
                conversation = HaystackConversation(known, turn_.state.get("context"))
                journal.history = conversation.history
            agent = journal.journal_agent(self.agent, self._turns.agent_id)
            # Copies: a message that is said twice is two messages.
            given = {**options, "messages": [*journal.history, *map(copy.copy, messages or ())]}
            if options.get("tools") is not None:
                given["tools"] = journal.journal_tools(options["tools"], self.agent)
            if streaming_callback is not None:
                given["streaming_callback"] = streaming_callback
            try:
                outputs = await journal.invoke(agent.run, agent.run_async, given)
            finally:
                journal.give_back()
            return self._end(conversation, outputs)

        def load(state: Mapping[str, Any], recorded: Mapping[str, Any]) -> dict[str, Any]:
            conversation = HaystackConversation.load(state)
            conversation_messages = [*load_value(recorded["system"]), *conversation.select(recorded["spans"])]
            return {
                "messages": conversation_messages,
                **load_value(recorded["outputs"]),
                **({"last_message": conversation_messages[-1]} if conversation_messages else {}),
            }

        given = _identify_run(messages, options)
        return await self._turns.take(is_async, given, turn, call, load, options.get("tools"))

    def _end(self, conversation: HaystackConversation, outputs: dict[str, Any]) -> TurnEnd:
        """Return the end of a turn: the agent's own system prompt is not part of the conversation."""
        messages = outputs.get("messages", [])
        has_system = self.agent.system_prompt is not None and messages and messages[0].is_from("system")
        spans = conversation.extend(messages[int(has_system) :])
        rest = {name: value for name, value in outputs.items() if name not in ("messages", "last_message")}
        recorded = {"system": dump_value(messages[: int(has_system)]), "spans": spans, "outputs": dump_value(rest)}
        return TurnEnd(outputs, recorded, {"context": conversation.spans}, {"messages": conversation.added})


class ResumablePipeline:
    """A pipeline and its runs in a store: components that have finished are not run again.

    `turn` identifies a run. Without it, a run is known by its data, and by how many such runs this
    process has finished.
    """

    def __init__(self, pipeline: Pipeline, **about: Any) -> None:
        self.pipeline = pipeline
        self._turns = HaystackTurns(pipeline, **about)

    def run(
        self,
        data: dict[str, Any],
        include_outputs_from: set[str] | None = None,
        *,
        turn: str | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Run the pipeline, or continue; a finished run returns its recorded outputs."""
        if options.get("pipeline_snapshot") is not None:
            raise UsageError("pipeline_snapshot= can't be given: the session has the place. Leave it out")
        given = {"data": data, "include_outputs_from": include_outputs_from, **options}
        taken: dict[str, Any] = run_inline(
            self._turns.take(False, _identify_data(data, include_outputs_from), turn, self._caller(given), _load)
        )
        return taken

    async def run_async(
        self,
        data: dict[str, Any],
        include_outputs_from: set[str] | None = None,
        concurrency_limit: int = 4,
        *,
        turn: str | None = None,
    ) -> dict[str, Any]:
        """`run` in the running event loop, where components without connections run side by side."""
        identity = _identify_data(data, include_outputs_from)
        return await self._run_async(identity, turn, data, include_outputs_from, concurrency_limit)

    async def run_async_generator(
        self,
        data: dict[str, Any],
        include_outputs_from: set[str] | None = None,
        concurrency_limit: int = 4,
        *,
        turn: str | None = None,
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the outputs of each component that finishes, and all outputs at the end.

        Those of components that finished before a crash are yielded, too. A finished run yields its
        outputs only.
        """
        outputs: dict[str, Any] = {}
        session = self._turns.open_session(is_async=True)
        async with session.open_turn(ENTRY, _identify_data(data, include_outputs_from), turn) as opened:
            if opened.turn is None:
                with session.guard_state():
                    outputs = _load(session.state, opened.recorded)
                yield outputs
                return
            journal = HaystackJournal(opened.turn, loop=asyncio.get_running_loop())
            pipeline = journal.journal_pipeline(self.pipeline)
            async for outputs in pipeline.run_async_generator(data, include_outputs_from, concurrency_limit):
                yield outputs
            opened.end = _end(journal, outputs)

    def stream(self, data: dict[str, Any], *, turn: str | None = None, **options: Any) -> Any:
        """Run the pipeline, or continue, and return Haystack's handle, which yields chunks of answers.

        Answers that were recorded before a crash are not streamed again.
        """
        pipeline = copy.copy(self.pipeline)
        identity = _identify_data(data, options.get("include_outputs_from"))
        pipeline.run_async = partial(self._run_async, identity, turn)  # what its `stream` calls
        return pipeline.stream(data, **options)

    async def _run_async(
        self,
        identity: Any,
        turn: str | None,
        data: dict[str, Any],
        include_outputs_from: set[str] | None = None,
        concurrency_limit: int = 4,
    ) -> dict[str, Any]:
        given = {
            "data": data,
            "include_outputs_from": include_outputs_from,
            "concurrency_limit": concurrency_limit,
        }
        taken: dict[str, Any] = await self._turns.take(True, identity, turn, self._caller(given), _load)
        return taken

    def _caller(self, given: dict[str, Any]) -> Call:
        async def call(journal: HaystackJournal) -> TurnEnd:
            pipeline = journal.journal_pipeline(self.pipeline)
            return _end(journal, await journal.invoke(pipeline.run, pipeline.run_async, given))

        return call


def _with_objects(effect: Effect) -> Effect:
    """Return a declaration whose functions get and return documents, not the plain data of the ledger."""

    def plain(answer: Any) -> Any:
        return Done(dump_value(answer.result)) if isinstance(answer, Done) else answer

    def convert(function: Any) -> Any:
        if not callable(function):
            return function

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return plain(function(*map(load_value, args), **load_value(kwargs)))

        @wraps(function)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            return plain(await function(*map(load_value, args), **load_value(kwargs)))

        return call_async if inspect.iscoroutinefunction(function) else call

    return replace(effect, key=convert(effect.key), probe=convert(effect.probe), undo=convert(effect.undo))


def _end(journal: HaystackJournal, outputs: dict[str, Any]) -> TurnEnd:
    return TurnEnd(outputs, dump_value(outputs), {}, {"messages": dump_messages(journal.new_messages)})


def _load(_: Mapping[str, Any], recorded: Any) -> dict[str, Any]:
    loaded: dict[str, Any] = load_value(recorded)
    return loaded


def _identify_run(messages: Sequence[ChatMessage] | None, options: Mapping[str, Any]) -> Any:
    """Return the input of an agent's run as plain data: the text, if it is one."""
    kept = {name: value for name, value in options.items() if name not in ("hook_context", "tools")}
    if options.get("tools") is not None:
        kept["tools"] = [tool if isinstance(tool, str) else tool.name for tool in options["tools"]]
    given = list(messages or ())
    if (
        len(given) == 1
        and not kept
        and given[0].is_from("user")
        and given[0].text
        and len(given[0].to_dict()["content"]) == 1
    ):
        return given[0].text
    return {"messages": [identify_message(item) for item in given], **identify_value(kept)}


def _identify_data(data: Mapping[str, Any], include_outputs_from: set[str] | None) -> Any:
    """Return the input of a pipeline's run as plain data."""
    named = {"include_outputs_from": sorted(include_outputs_from)} if include_outputs_from else {}
    return {"data": identify_value(dict(data)), **named}
