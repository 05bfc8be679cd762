"""`HoldfastDurability`: the capability that records the model and tool calls of an agent.

Within a turn of a resumable agent it records into that turn, sub-agents included. Within a run of
one's own it records into that run. Elsewhere it does nothing.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pydantic_ai import ApprovalRequired, CallDeferred, ToolFailed
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.exceptions import SkipToolExecution
from pydantic_ai.models import CompletedStreamedResponse, Model
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.tools import DeferredToolResults, ToolApproved, ToolDenied

from holdfast.adapters.base.turn import FrameworkTurn, TurnEndedError
from holdfast.adapters.pydantic_ai.messages import (
    SIGNALS,
    dump_response,
    dump_signal,
    dump_tool_result,
    identify_request,
    load_response,
    load_tool_result,
)
from holdfast.errors import EffectNotDoneError
from holdfast.model.effect import EffectKind
from holdfast.model.tool_effect import Effect, declared_effects
from holdfast.runs.api import Run

_current: ContextVar[FrameworkTurn | None] = ContextVar("holdfast_pydantic_ai_turn", default=None)


@contextmanager
def recorded_into(turn: FrameworkTurn) -> Iterator[None]:
    """Make a turn the one that runs of agents within the block are recorded into."""
    token = _current.set(turn)
    try:
        yield
    finally:
        _current.reset(token)


@dataclass(init=False)
class HoldfastDurability(AbstractCapability[Any]):
    """Records the model and tool calls of an agent, and returns recorded results after a crash.

    `Agent(..., capabilities=[HoldfastDurability()])` makes an agent part of the turn that it runs
    in: the one of the resumable agent that has it as a sub-agent. With `run`, an open run of a
    client, the calls are steps and effects of that run: `agent.run(prompt, capabilities=[
    HoldfastDurability(run, client=client)])`. One object stands for one run. `client` is needed for
    approvals.
    """

    def __init__(
        self, run: Run | None = None, *, client: Any = None, tools: Mapping[str, Effect | str] | None = None
    ) -> None:
        self.id = "holdfast"  # one for each agent: that of a run replaces that of its agent
        self._own = None if run is None else FrameworkTurn(run, client, "pydantic_ai", {}, declared_effects(tools))
        self._turn: FrameworkTurn | None = None
        self._result: Any = None
        self._is_streamed = False
        self._to_approve: set[str] = set()
        self._run_id: str | None = None
        self._before: frozenset[int] = frozenset()
        self._speaker = "agent"
        self._functions: dict[str, Any] = {}

    def with_result(self, result: Any) -> HoldfastDurability:
        """Return a capability whose run has that result, without a call of the model."""
        copied = copy.copy(self)
        copied._result = result
        return copied

    def for_stream(self) -> HoldfastDurability:
        """Return a capability for `run_stream`, which would end at a call that needs approval."""
        copied = copy.copy(self)
        copied._is_streamed = True
        copied._to_approve = set()
        return copied

    def set_history(self, history: Iterable[Any]) -> None:
        """Let a number stand for the messages before the turn in requests to the model."""
        self._before = frozenset(map(id, history))

    def get_ordering(self) -> CapabilityOrdering:
        return CapabilityOrdering(position="innermost")

    async def for_run(self, ctx: Any) -> HoldfastDurability:
        copied = copy.copy(self)
        copied._turn = self._own or _current.get()
        copied._run_id = ctx.run_id
        copied._speaker = getattr(ctx.agent, "name", None) or "agent"
        copied._functions = find_functions(ctx.agent.toolsets if ctx.agent is not None else ())
        return copied

    async def wrap_run(self, ctx: Any, *, handler: Callable[[], Any]) -> Any:
        return await handler() if self._result is None else self._result

    @contextmanager
    def _errors_of_own_run(self) -> Iterator[None]:
        """Raise what has ended a run of one's own; a resumable agent does that after its turn."""
        try:
            yield
        except TurnEndedError:
            if self._own is None or self._own.ended_by is None:
                raise
            raise self._own.ended_by from None

    # -- the model -----------------------------------------------------------------------------------------------------

    def get_wrapper_model(self, model: Model) -> Model | None:
        if self._turn is None:
            return None
        identify = partial(identify_request, run_id=self._run_id, before=self._before)
        return JournaledPydanticModel(model, self._turn, self._speaker, identify, self._errors_of_own_run)

    # -- tools ---------------------------------------------------------------------------------------------------------

    async def prepare_tools(self, ctx: Any, tool_defs: list[Any]) -> list[Any]:
        """Within a stream, offer tools that need approval as plain ones: `wrap_tool_execute` asks for it."""
        if self._turn is None or not self._is_streamed:
            return tool_defs
        self._to_approve |= {tool_def.name for tool_def in tool_defs if tool_def.kind == "unapproved"}
        return [
            replace(tool_def, kind="function") if tool_def.name in self._to_approve else tool_def
            for tool_def in tool_defs
        ]

    async def wrap_tool_execute(
        self, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Callable[[Any], Any]
    ) -> Any:
        turn = self._turn
        if turn is None:
            return await handler(args)
        given, name = call.args_as_dict(), call.tool_name
        if name in self._to_approve:
            with self._errors_of_own_run():
                answer = await turn.request_approval(name, given, call_id=call.tool_call_id)
            if not answer.is_approved:
                raise ToolFailed(answer.note or ToolDenied().message)
            if answer.arguments is not None:
                given = dict(answer.arguments)
                args = _validate_arguments(ctx, name, given)
        function = self._functions.get(name)
        declared = turn.find_effect(name, function)
        is_effect = declared is not None and declared.kind != EffectKind.READ
        raised: list[Exception] = []
        made: list[bool] = []

        async def execute(**kept: Any) -> Any:
            # They differ from the model's if a person has approved others.
            sent = args if kept == given else _validate_arguments(ctx, name, kept)
            try:
                result = await handler(sent)
            except SIGNALS as error:
                raised.append(error)
                if not is_effect:
                    return dump_signal(error)
                if isinstance(error, ApprovalRequired | CallDeferred):
                    raise EffectNotDoneError(f"{name} waits for others") from error
                if isinstance(error.__cause__, SIGNALS):  # the ledger must see what the tool itself has raised
                    raise error.__cause__ from None
                raise
            made.append(True)
            return dump_tool_result(result)

        def failed(error: Exception) -> Any:
            if raised:
                return dump_signal(raised[0])
            raise error

        async def call_tool() -> Any:
            return await turn.call_tool(
                name,
                given,
                execute,
                call_id=call.tool_call_id,
                function=function,
                failed=failed,
                load=load_tool_result,
            )

        with self._errors_of_own_run():
            try:
                result = await call_tool()
            except EffectNotDoneError:
                if raised or not ctx.tool_call_approved:
                    raise
                result = await call_tool()  # the recorded failure was that it needs approval, which it has now
        if raised:
            raise raised[0]
        if isinstance(result, SIGNALS):
            raise result
        if made:
            return result
        raise SkipToolExecution(result)  # which counts the call, as it was counted when it was made

    # -- people --------------------------------------------------------------------------------------------------------

    async def handle_deferred_tool_calls(self, ctx: Any, *, requests: Any) -> DeferredToolResults | None:
        """Ask people about the calls that need approval; leave calls that others carry out to the caller."""
        if self._turn is None or not requests.approvals:
            return None
        asked = [(call.tool_name, call.args_as_dict(), call.tool_call_id) for call in requests.approvals]
        with self._errors_of_own_run():
            answers = await self._turn.request_approvals(asked)
        results = DeferredToolResults()
        for call, answer in zip(requests.approvals, answers, strict=True):
            if answer.is_approved:
                changed = None if answer.arguments is None else dict(answer.arguments)
                results.approvals[call.tool_call_id] = ToolApproved(override_args=changed)
            else:
                results.approvals[call.tool_call_id] = ToolDenied(answer.note) if answer.note else ToolDenied()
        return results


class JournaledPydanticModel(WrapperModel):
    """A model that gives the recorded answer to a request, or asks the user's own model."""

    def __init__(
        self,
        model: Model,
        turn: FrameworkTurn,
        speaker: str,
        identify: Callable[..., dict[str, Any]],
        errors: Callable[[], Any],
    ) -> None:
        super().__init__(model)
        self._turn = turn
        self._errors = errors
        self._speaker = speaker
        self._identify = identify

    async def request(self, messages: Any, model_settings: Any, model_request_parameters: Any) -> Any:
        async def ask() -> dict[str, Any]:
            return dump_response(await self.wrapped.request(messages, model_settings, model_request_parameters))

        request = self._identify(messages, model_request_parameters)
        with self._errors():
            return await self._turn.call_model(self._speaker, request, ask, load_response)

    @asynccontextmanager
    async def request_stream(
        self, messages: Any, model_settings: Any, model_request_parameters: Any, run_context: Any = None
    ) -> AsyncIterator[Any]:
        request = self._identify(messages, model_request_parameters)
        async with self._turn.open_model_call(self._speaker, request, load_response) as call:
            if call.answer is not None:
                yield CompletedStreamedResponse(
                    call.answer, model_request_parameters=model_request_parameters, replay_events=True
                )
                return
            opened = self.wrapped.request_stream(messages, model_settings, model_request_parameters, run_context)
            async with opened as stream:
                recorded: list[bool] = []

                async def record() -> None:
                    response = stream.get()
                    recorded.append(True)
                    await call.record(dump_response(replace(response, state="complete")))

                _record_at_end(stream, record)
                yield stream
                if not recorded and stream.get().state == "complete":
                    await record()


def _record_at_end(stream: Any, record: Callable[[], Any]) -> None:
    """Record a streamed answer after its last event, before the agent acts on it."""
    iterate = stream._get_event_iterator  # the method that each model's stream implements

    async def events() -> AsyncIterator[Any]:
        async for event in iterate():
            yield event
        if not stream.cancelled and stream.state == "complete":
            await record()

    stream._get_event_iterator = events


def find_functions(toolsets: Iterable[Any]) -> dict[str, Any]:
    """Return the functions of tools by name: they may carry a declaration."""
    found: dict[str, Any] = {}

    def visit(toolset: Any) -> None:
        tools = getattr(toolset, "tools", None)
        for name, tool in tools.items() if isinstance(tools, Mapping) else ():
            found[name] = getattr(tool, "function", None)

    for toolset in toolsets:
        toolset.apply(visit)
    return found


def _validate_arguments(ctx: Any, tool: str, arguments: dict[str, Any]) -> Any:
    """Return arguments that a person has approved instead of the model's, validated as those were."""
    manager = getattr(ctx, "tool_manager", None)
    found = (manager.tools or {}).get(tool) if manager is not None else None
    return arguments if found is None else found.args_validator.validate_python(arguments)
