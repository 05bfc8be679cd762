"""The loop: the model is asked, its tools are carried out, until it has nothing more to ask for.

Written once, as a coroutine that awaits its keeper and what the program gave; `faces.py` has the two ways to call it. Every
state is saved before anything follows from it: after the prompt, after each answer of the model, after each tool, and when
a turn fails or is cancelled.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from holdfast.agents.keepers import SUBAGENTS, ChildKeeper, Invoke, Keeper
from holdfast.agents.replies import Reply, added_usage, for_model, reply_of
from holdfast.agents.tools import Tool
from holdfast.errors import ApprovalPendingError, LeaseLostError, ModelError, StoreError
from holdfast.model import repair, transcript
from holdfast.model.agentstate import AgentState, moment_text, now
from holdfast.model.repair import Fate, OnOpenCall, Outcome
from holdfast.model.runs import SubagentTrace
from holdfast.model.runs import ToolCall as ToolTrace
from holdfast.model.transcript import ToolCall

USAGE, STOPPED, TOOL_CALLS = "usage", "stopped", "tool_calls"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEvent:
    """What happens in a turn. `kind` is "text" (a piece of what the model says, as it comes), "message" (all that it said),
    "tool_call", "tool_result" or "end". What an event of another kind than "text" tells is saved already."""

    kind: str
    text: str = ""
    message: Mapping[str, Any] | None = None
    call: ToolCall | None = None
    outcome: Outcome | None = None
    state: AgentState
    stop: str | None = None  # of "end": "end", or "max_steps"


@dataclass(slots=True, kw_only=True)
class Loop:
    """An agent's own: what it was made of."""

    model: Any
    tools: Mapping[str, Tool]
    system: str | None
    max_steps: int
    on_open_call: str
    invoke: Invoke
    keeps_traces: bool = False  # a sub-agent's: which tools it called is part of its state
    schemas: list[dict[str, Any]] = field(default_factory=list)

    async def turn(
        self, keeper: Keeper, state: AgentState, prompt: Any, *, is_streamed: bool
    ) -> AsyncGenerator[AgentEvent]:
        """From a prompt, or without one from where the state stands, to the end of the turn."""
        place = _Place(state)
        try:
            async with aclosing(self._turn(keeper, place, prompt, is_streamed=is_streamed)) as events:
                async for event in events:
                    yield event
        except (LeaseLostError, StoreError):
            raise  # it can't be saved, or is somebody else's to save
        except ApprovalPendingError:
            raise  # nothing failed: it waits, and what it waits with is saved
        except GeneratorExit:
            raise  # whoever reads the events has stopped: what was told is saved
        except BaseException as error:
            is_failure = isinstance(error, Exception)
            stopped = {"why": "failed" if is_failure else "cancelled", "error": repr(error)[:1000], "at": now()}
            await keeper.save(place.state.with_metadata(STOPPED, stopped), str(stopped["why"]))
            raise

    async def _turn(
        self, keeper: Keeper, place: _Place, prompt: Any, *, is_streamed: bool
    ) -> AsyncGenerator[AgentEvent]:
        if STOPPED in place.state.metadata:
            place.state = place.state.without_metadata(STOPPED)
        async with aclosing(self._closed(keeper, place)) as events:
            async for event in events:
                yield event
        if prompt is not None:
            message = prompt if isinstance(prompt, Mapping) else {"role": "user", "content": prompt}
            place.state = place.state.with_message(message)
            await keeper.save(place.state, "prompt")
        elif _has_ended(place.state):
            yield AgentEvent(kind="end", text=place.state.text, state=place.state, stop="end")
            return
        for _ in range(self.max_steps):
            reply, spoken = None, ""
            async with aclosing(self._asked(place.state, is_streamed=is_streamed)) as events:
                async for piece in events:
                    if isinstance(piece, str):
                        spoken += piece
                        yield AgentEvent(kind="text", text=piece, state=place.state)
                    else:
                        reply = piece
            if reply is None and not spoken:
                raise ModelError("the model's stream ended without a word: it must yield text, or a message at its end")
            place.state = _answered(place.state, reply or reply_of(spoken))  # text alone is what the model said
            await keeper.save(place.state, "model")
            said = place.state.messages[-1]
            yield AgentEvent(kind="message", text=str(said.get("content") or ""), message=said, state=place.state)
            calls = transcript.calls_of(said)
            if not calls:
                yield AgentEvent(kind="end", text=place.state.text, state=place.state, stop="end")
                return
            for call in calls:
                async with aclosing(self._carried_out(keeper, place, call)) as events:
                    async for event in events:
                        yield event
        yield AgentEvent(kind="end", text=place.state.text, state=place.state, stop="max_steps")

    # -- the model -----------------------------------------------------------------------------------------------------

    async def _asked(self, state: AgentState, *, is_streamed: bool) -> AsyncGenerator[str | Reply]:
        messages = for_model(state.messages, self.system)
        stream = getattr(self.model, "stream", None) if is_streamed else None
        if stream is None:
            yield reply_of(await self.invoke(self.model, (messages, self.schemas), {}))
            return
        pieces = stream(messages, self.schemas)
        if inspect.isasyncgen(pieces) or hasattr(pieces, "__anext__"):
            async for piece in pieces:
                yield piece if isinstance(piece, str) else reply_of(piece)
            return
        try:
            while (piece := await self.invoke(next, (pieces, None), {})) is not None:
                yield piece if isinstance(piece, str) else reply_of(piece)
        finally:
            pieces.close()

    # -- its tools -----------------------------------------------------------------------------------------------------

    async def _closed(self, keeper: Keeper, place: _Place) -> AsyncGenerator[AgentEvent]:
        """Answers what the conversation was cut off in, by what is known of it."""
        calls = transcript.open_calls(place.state.messages)
        if not calls:
            return
        if self.on_open_call == OnOpenCall.EXECUTE:
            for call in calls:
                async with aclosing(self._carried_out(keeper, place, call)) as events:
                    async for event in events:
                        yield event
            return
        outcomes = [(call, await self._known(keeper, place.state, call)) for call in calls]
        if self.on_open_call == OnOpenCall.RAISE:
            repair.refuse(outcomes)
        for call, outcome in outcomes:
            place.state = self._with_answer(place.state, call, now(), outcome)
            yield AgentEvent(kind="tool_result", text=outcome.text(), call=call, outcome=outcome, state=place.state)
        await keeper.save(place.state, "repaired")

    async def _known(self, keeper: Keeper, state: AgentState, call: ToolCall) -> Outcome:
        tool = self.tools.get(call.name)
        refused = self._refusal(tool, call)
        if refused is not None or tool is None:
            return refused or repair.NOT_STARTED
        if tool.subagent is not None:
            began = _key(state, call) in state.metadata.get(SUBAGENTS, {})
            return repair.UNKNOWN if began else repair.NOT_STARTED
        return await keeper.outcome(tool, call, _key(state, call), state)

    async def _carried_out(self, keeper: Keeper, place: _Place, call: ToolCall) -> AsyncGenerator[AgentEvent]:
        yield AgentEvent(kind="tool_call", call=call, state=place.state)
        tool, began = self.tools.get(call.name), now()
        told: list[Outcome] = []
        before = place.state

        def finish(outcome: Outcome) -> AgentState:
            told.append(outcome)
            return self._with_answer(before, call, began, outcome)

        refused = self._refusal(tool, call)
        if refused is not None or tool is None:
            place.state = finish(refused or repair.NOT_STARTED)
            await keeper.save(place.state, call.name)
        elif tool.subagent is not None:
            place.state = await self._delegated(keeper, tool, call, place, told)
        else:
            place.state = await keeper.carry_out(tool, call, _key(before, call), before, finish)
        outcome = told[-1]
        yield AgentEvent(kind="tool_result", text=outcome.text(), call=call, outcome=outcome, state=place.state)

    def _refusal(self, tool: Tool | None, call: ToolCall) -> Outcome | None:
        """What a call is answered that can't be made."""
        if tool is None:
            return Outcome(Fate.FAILED, words=f"there is no tool {call.name!r:.60}; there are {', '.join(self.tools)}")
        if call.arguments is None:
            return Outcome(Fate.FAILED, words="its arguments are no JSON object")
        complaint = tool.complaint(call.arguments)
        return None if complaint is None else Outcome(Fate.FAILED, words=f"it can't be called so: {complaint}")

    def _with_answer(self, state: AgentState, call: ToolCall, began: str, outcome: Outcome) -> AgentState:
        answer = transcript.answer(replace(call, shape=transcript.OPENAI), outcome.text(), is_error=outcome.is_error)
        answer |= {"name": call.name, "metadata": {"fate": str(outcome.fate)}}
        closed = state.with_message_at(transcript.place_of_answer(state.messages, call), answer)
        if self.keeps_traces:
            failed = outcome.is_error
            trace = {"name": call.name, "key": call.id, "started_at": began, "ended_at": now(), "failed": failed}
            trace["error"] = outcome.words if failed else None
            closed = closed.with_metadata(TOOL_CALLS, [*state.metadata.get(TOOL_CALLS, ()), trace])
        return closed

    # -- its sub-agents ------------------------------------------------------------------------------------------------

    def may_have_changed_something(self, state: AgentState) -> bool:
        """Whether a tool was asked for there that does more than read."""
        asked = {call.name for message in state.messages for call in transcript.calls_of(message)}
        return any(tool.kind != "read" for name, tool in self.tools.items() if name in asked)

    async def _delegated(
        self, keeper: Keeper, tool: Tool, call: ToolCall, place: _Place, told: list[Outcome]
    ) -> AgentState:
        """A sub-agent's turn, from its beginning or from where it stopped; its trace becomes part of the state."""
        loop: Loop = replace(tool.subagent, invoke=self.invoke)  # awaited or not, as who asks is
        key = _key(place.state, call)
        child = ChildKeeper(keeper, key, place.state)
        state = await child.load()
        prompt = None if state is not None else (call.arguments or {}).get("prompt", "")
        state = state or AgentState.initial().with_metadata("began", moment_text(datetime.now(UTC)))
        end: AgentEvent | None = None
        try:
            async with aclosing(loop.turn(child, state, prompt, is_streamed=False)) as events:
                async for event in events:
                    state, end = event.state, event
        except (ApprovalPendingError, LeaseLostError, StoreError):
            raise
        except Exception as error:
            state = await child.load() or state
            fate = Fate.UNKNOWN if loop.may_have_changed_something(state) else Fate.FAILED
            outcome = Outcome(fate, words=f"{type(error).__name__}: {error}")
        except BaseException:
            place.state = child.state  # what it came to must not be lost when the turn is saved as cancelled
            raise
        else:
            assert end is not None
            outcome = Outcome(Fate.FINISHED, end.text)
        told.append(outcome)
        trace = _trace(tool, call, state, outcome)
        after = _without_child(child.state, key)
        after = self._with_answer(after, call, str(state.metadata["began"]), outcome).with_subagent_trace(trace)
        await keeper.save(after, tool.name)
        return after


class _Place:
    """Where a turn stands: what is saved if it fails."""

    def __init__(self, state: AgentState) -> None:
        self.state = state


def _answered(state: AgentState, reply: Reply) -> AgentState:
    after = state.with_message(reply.message).with_step(state.step + 1)
    if reply.reasoning:
        after = after.with_reasoning(reply.reasoning)
    if reply.usage:
        after = after.with_metadata(USAGE, added_usage(state.metadata.get(USAGE, {}), reply.usage))
    return after


def _key(state: AgentState, call: ToolCall) -> str:
    """Which call of which message it is: some models number their calls anew in each message."""
    for turn in transcript.turns(state.messages):
        if any(one.id == call.id for one in turn.open):
            return f"{state.messages[turn.index].get('id', turn.index)}/{call.id}"
    return call.id


def _has_ended(state: AgentState) -> bool:
    """Whether there is nothing to go on with: the model spoke last, and asked for nothing."""
    last = state.messages[-1] if state.messages else None
    return last is None or (transcript.is_models(last) and not transcript.calls_of(last))


def _without_child(state: AgentState, key: str) -> AgentState:
    left = {one: kept for one, kept in state.metadata.get(SUBAGENTS, {}).items() if one != key}
    return state.with_metadata(SUBAGENTS, left) if left else state.without_metadata(SUBAGENTS)


def _trace(tool: Tool, call: ToolCall, state: AgentState, outcome: Outcome) -> SubagentTrace:
    calls = [
        ToolTrace(
            name=one["name"],
            key=one["key"],
            started_at=datetime.fromisoformat(one["started_at"]),
            ended_at=datetime.fromisoformat(one["ended_at"]),
            failed=one["failed"],
            error=one["error"],
        )
        for one in state.metadata.get(TOOL_CALLS, ())
    ]
    return SubagentTrace(
        subagent_id=f"{tool.name}/{call.id}",
        subagent_type=tool.name,
        parent_tool_call_id=call.id,
        prompt=(call.arguments or {}).get("prompt", ""),
        started_at=datetime.fromisoformat(str(state.metadata["began"])),
        ended_at=datetime.now(UTC),
        success=not outcome.is_error,
        result=None if outcome.is_error else outcome.value,
        error=outcome.words if outcome.is_error else None,
        tool_calls=tuple(calls),
        usage=state.metadata.get(USAGE, {}),
    )
