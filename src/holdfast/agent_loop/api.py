"""`agent(...)`: a small reference loop that survives, awaited or not."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, overload

from holdfast.agent_loop.directory_tool import bound_to
from holdfast.agent_loop.loop import USAGE, AgentEvent, AgentLoop
from holdfast.agent_loop.persistence import PlainAgentStore, RunAgentStore
from holdfast.agent_loop.tool import Tool, as_tool, by_name
from holdfast.backends.bridge.step import run_inline
from holdfast.client.client import Client
from holdfast.client.sync import SyncClient
from holdfast.errors import UsageError
from holdfast.model.agent_state import AgentState
from holdfast.model.approval import Policy
from holdfast.operations import validate
from holdfast.runs.api import _call_awaited, _call_plainly


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The end of a turn: the model's last answer, and the state it led to.

    `stop` is "end", or "max_steps" if the model asked for more steps than allowed. `turn, state =
    bot.generate(...)` unpacks it.
    """

    text: str
    state: AgentState
    stop: str

    def __iter__(self) -> Iterator[Any]:
        """Yield the turn and its state: `turn, state = bot.generate(...)`."""
        yield self
        yield self.state

    @property
    def usage(self) -> Mapping[str, Any]:
        """Return the usage of the whole conversation so far, as the model counts it."""
        found: Mapping[str, Any] = self.state.metadata.get(USAGE, {})
        return found


class _Agent:
    _is_sync = False

    def __init__(
        self, loop: AgentLoop, checkpoints: Any, session_id: str, agent_id: str, options: dict[str, Any]
    ) -> None:
        self._loop = loop
        self._checkpoints = checkpoints
        self._options = options
        self.session_id = session_id
        self.agent_id = agent_id

    def as_tool(self, name: str, description: str) -> Tool:
        """Return the agent as a tool of another one: it takes a prompt, and returns its last answer.

        Its state and its trace are stored within the other agent's; its own session is not touched.
        """
        loop = replace(self._loop, keeps_traces=True)

        def ask(prompt: str) -> str:
            raise NotImplementedError(prompt)  # the loop carries out the sub-agent itself

        return as_tool(ask, name=name, description=description, subagent=loop)

    def _agent_store(self) -> Any:
        if isinstance(self._checkpoints, (Client, SyncClient)):
            options = {"session_id": self.session_id, "agent_id": self.agent_id, **self._options}
            return RunAgentStore(self._checkpoints, options, self._loop.tools, is_sync=self._is_sync)
        if asking := _find_asking_tool(self._loop):  # not before: it may be meant as a tool of one that has a client
            raise UsageError(
                f"tool {asking!r:.60} waits for approval, which is asked for in a store: checkpoints=client"
            )
        return PlainAgentStore(self._checkpoints, self.session_id, self._loop.invoke)

    async def _events(self, prompt: Any, state: AgentState | None, *, is_streamed: bool) -> AsyncGenerator[AgentEvent]:
        if state is not None and not isinstance(state, AgentState):
            raise UsageError(
                f"state is a {type(state).__name__}: it must be an AgentState, such as `turn.state`, or "
                "AgentState.from_json(...) of what `to_json` gave"
            )
        async with self._agent_store() as keeper:
            begun = state if state is not None else await keeper.load() or AgentState.initial()
            begun = _name_session(begun, self.session_id, self.agent_id)
            async with aclosing(self._loop.turn(keeper, begun, prompt, is_streamed=is_streamed)) as events:
                async for event in events:
                    yield event

    async def _generate(self, prompt: Any, state: AgentState | None) -> Turn:
        async for event in self._events(prompt, state, is_streamed=False):
            if event.kind == "end":
                ended = event
        return Turn(text=ended.text, state=ended.state, stop=ended.stop or "end")

    async def _query(self, prompt: Any) -> Turn:
        loop = self._loop
        read_only = {name: tool for name, tool in loop.tools.items() if tool.kind == "read" and tool.subagent is None}
        schemas = [tool.schema() for tool in read_only.values()]
        asked = replace(loop, tools=read_only, schemas=schemas, on_open_call="error", keeps_traces=False)
        nowhere = PlainAgentStore(None, "", loop.invoke)
        async for event in asked.turn(nowhere, AgentState.initial(), prompt, is_streamed=False):
            if event.kind == "end":
                ended = event
        return Turn(text=ended.text, state=ended.state, stop=ended.stop or "end")

    async def _load(self) -> AgentState | None:
        if isinstance(self._checkpoints, (Client, SyncClient)):
            found = self._checkpoints.latest(session_id=self.session_id)
            checkpoint: Any = found if self._is_sync else await found  # type: ignore[misc]  # Client
            return None if checkpoint is None else AgentState.from_json(checkpoint.execution_state)
        return await PlainAgentStore(self._checkpoints, self.session_id, self._loop.invoke).load()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.agent_id!r:.60} of session {self.session_id!r:.60}>"


class Agent(_Agent):
    """An agent loop whose place is kept."""

    async def generate(self, prompt: Any = None, state: AgentState | None = None) -> Turn:
        """Run a turn: from the prompt until the model calls no more tools.

        It continues from `state` or, without it, from the session's head; interrupted tool calls
        are repaired first. Without a prompt, it continues where it was stopped, and does nothing if
        the turn has ended.
        """
        return await self._generate(prompt, state)

    async def stream(self, prompt: Any = None, state: AgentState | None = None) -> AsyncGenerator[AgentEvent]:
        """Yield the events of a turn as they happen. All kinds but "text" are saved before they are yielded."""
        async with aclosing(self._events(prompt, state, is_streamed=True)) as events:
            async for event in events:
                yield event

    async def query(self, prompt: Any) -> Turn:
        """Ask a question outside the conversation: save nothing, and allow only tools of the kind "read"."""
        return await self._query(prompt)

    async def load(self) -> AgentState | None:
        """Return the state at the session's head; None if there is none."""
        return await self._load()


class SyncAgent(_Agent):
    """`Agent` without `await`: the model and the tools are plain functions."""

    _is_sync = True

    def generate(self, prompt: Any = None, state: AgentState | None = None) -> Turn:
        return run_inline(self._generate(prompt, state))

    def stream(self, prompt: Any = None, state: AgentState | None = None) -> Iterator[AgentEvent]:
        events = self._events(prompt, state, is_streamed=True)
        try:
            while True:
                try:
                    yield run_inline(events.__anext__())
                except StopAsyncIteration:
                    return
        finally:
            run_inline(events.aclose())

    def query(self, prompt: Any) -> Turn:
        return run_inline(self._query(prompt))

    def load(self) -> AgentState | None:
        return run_inline(self._load())


@overload
def agent(
    model: Any,
    tools: Sequence[Any] = (),
    *,
    checkpoints: SyncClient,
    session_id: str | None = None,
    agent_id: str = "agent",
    system: str | None = None,
    max_steps: int = 50,
    on_open_call: str = "execute",
    policy: Policy | None = None,
    approval_wait: float | None = 0.0,
    approval_seconds: float | None = None,
    app_version: str | None = None,
    workspace: Any = None,
    sync: bool | None = None,
) -> SyncAgent: ...


@overload
def agent(
    model: Any,
    tools: Sequence[Any] = (),
    checkpoints: Any = None,
    session_id: str | None = None,
    *,
    agent_id: str = "agent",
    system: str | None = None,
    max_steps: int = 50,
    on_open_call: str = "execute",
    policy: Policy | None = None,
    approval_wait: float | None = 0.0,
    approval_seconds: float | None = None,
    app_version: str | None = None,
    workspace: Any = None,
    sync: None = None,
) -> Agent: ...


def agent(
    model: Any,
    tools: Sequence[Any] = (),
    checkpoints: Any = None,
    session_id: str | None = None,
    *,
    agent_id: str = "agent",
    system: str | None = None,
    max_steps: int = 50,
    on_open_call: str = "execute",
    policy: Policy | None = None,
    approval_wait: float | None = 0.0,
    approval_seconds: float | None = None,
    app_version: str | None = None,
    workspace: Any = None,
    sync: bool | None = None,
) -> Any:
    """Make an agent loop over any model.

    `model(messages, tools)` returns text, a message with `tool_calls`, or a whole response; it may
    be a coroutine function. `tools` are functions, or results of `tool`.

    `checkpoints` is a `Client` or `SyncClient` (tools are effects then, with a ledger, approvals
    and `policy`), or a plain `CheckpointStore` (`FileCheckpoints(dir)`), or None. With a
    `SyncClient`, a store of plain functions, or `sync=True` the agent is a `SyncAgent`.

    `on_open_call` decides about tool calls that were interrupted: "execute" runs those that were
    not started, "error" answers with what is known, "raise" raises `OpenToolCallError`. `workspace`
    is a directory whose files are stored with each checkpoint, and which the tools of
    `holdfast.tools` work in.

    `approval_wait` is the number of seconds that a turn waits for a decision (None: as long as it
    takes) before it ends with `ApprovalPendingError`; the next `generate()` continues from there.
    An approval is valid for `approval_seconds` (None: a day).
    """
    if not callable(model):
        raise UsageError(f"model is {model!r:.60}: it must be something to call with (messages, tools)")
    if session_id is not None and checkpoints is None:
        raise UsageError(
            f"session_id is {session_id!r:.60}, and there is no store to keep that session in: nothing "
            "of it would be saved. Give "
            "checkpoints=, such as a Client or FileCheckpoints(dir), or leave session_id out"
        )
    named = by_name(tools)
    has_ledger = isinstance(checkpoints, (Client, SyncClient))
    if not has_ledger:
        if workspace is not None:
            raise UsageError("a workspace is kept with the checkpoints of a client: checkpoints=client")
        if policy is not None:
            raise UsageError(
                "a policy makes tools wait for approval, which is asked for in a store: checkpoints=client"
            )
    if workspace is not None:
        named = bound_to(named, getattr(workspace, "path", workspace))
    is_sync = _is_sync(checkpoints) if sync is None else sync
    if has_ledger and is_sync != isinstance(checkpoints, SyncClient):
        raise UsageError("a SyncClient makes a SyncAgent, a Client an Agent: leave `sync` out")
    if not isinstance(max_steps, int) or max_steps < 1:
        raise UsageError(f"max_steps is {max_steps!r}: it must be a whole number from 1 on")
    loop = AgentLoop(
        model=model,
        tools=named,
        system=validate.optional_name("system", system),
        max_steps=max_steps,
        on_open_call=validate.one_of("on_open_call", on_open_call, ("execute", "error", "raise")),
        invoke=_call_plainly if is_sync else _call_awaited,
        schemas=[tool.schema() for tool in named.values()],
    )
    options = {"policy": policy, "approval_wait": approval_wait, "approval_seconds": approval_seconds,
               "app_version": app_version, "workspace": workspace}  # fmt: skip
    session_id = str(uuid.uuid4()) if session_id is None else validate.name("session_id", session_id)
    kind = SyncAgent if is_sync else Agent
    return kind(loop, checkpoints, session_id, validate.name("agent_id", agent_id), options)


def _is_sync(checkpoints: Any) -> bool:
    import inspect

    if checkpoints is None or isinstance(checkpoints, Client):
        return False
    if isinstance(checkpoints, SyncClient):
        return True
    missing = [verb for verb in ("save", "load") if not callable(getattr(checkpoints, verb, None))]
    if missing:
        raise UsageError(
            f"checkpoints is a {type(checkpoints).__name__}, which has no {missing[0]}: give a Client, a SyncClient, a "
            "CheckpointStore such as FileCheckpoints(dir), or None"
        )
    return not inspect.iscoroutinefunction(checkpoints.save)


def _find_asking_tool(loop: AgentLoop) -> str | None:
    """Return a tool of the loop, or of one of its sub-agents, that needs approval."""
    for tool in loop.tools.values():
        found = (
            tool.name
            if tool.approve is not None
            else _find_asking_tool(tool.subagent)
            if tool.subagent is not None
            else None
        )
        if found is not None:
            return found
    return None


def _name_session(state: AgentState, session_id: str, agent_id: str) -> AgentState:
    """Return the state with its session and agent: a plain store has no other place for them."""
    if state.metadata.get("session_id") == session_id and state.metadata.get("agent_id") == agent_id:
        return state
    return state.with_metadata("session_id", session_id).with_metadata("agent_id", agent_id)
