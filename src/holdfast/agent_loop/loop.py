"""The agent loop: call the model and carry out its tool calls until it makes none.

It is written once, as a coroutine that awaits its store and the program's functions; `api.py` has
the two interfaces. Every state is saved before anything follows from it: after the prompt, after
each answer of the model, after each tool, and when a turn fails or is cancelled.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from holdfast.agent_loop.decision import decision_of, key_of_open_call
from holdfast.agent_loop.persistence import SUBAGENTS, AgentStore, ChildAgentStore, Invoke
from holdfast.agent_loop.reply import Reply, added_usage, for_model, reply_of
from holdfast.agent_loop.tool import Tool
from holdfast.errors import ApprovalPendingError, LeaseLostError, ModelError, StoreError
from holdfast.model import transcript, transcript_repair
from holdfast.model.agent_state import AgentState, format_moment, get_now
from holdfast.model.run_policy import SubagentCall as ToolTrace
from holdfast.model.run_policy import SubagentTrace
from holdfast.model.transcript import ToolCall
from holdfast.model.transcript_repair import CallOutcome, OnOpenCall, Outcome

USAGE, STOPPED, TOOL_CALLS = "usage", "stopped", "tool_calls"
LONGEST_NAME = 100  # of a tool that there is not: the model made it up
NO_OBJECT = (
    "its arguments are no JSON object: they are malformed, nested too deeply, or cut off at the model's token limit"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEvent:
    """An event of a turn.

    `kind` is "text" (a piece of the model's answer, as it comes), "message" (the whole answer),
    "tool_call", "tool_result" or "end". An event of another kind than "text" is saved before it is
    yielded.
    """

    kind: str
    text: str = ""
    message: Mapping[str, Any] | None = None
    call: ToolCall | None = None
    outcome: Outcome | None = None
    state: AgentState
    stop: str | None = None  # of "end": "end", or "max_steps"


@dataclass(slots=True, kw_only=True)
class AgentLoop:
    """The configuration of an agent, and its loop."""

    model: Any
    tools: Mapping[str, Tool]
    system: str | None
    max_steps: int
    on_open_call: str
    invoke: Invoke
    keeps_traces: bool = False  # a sub-agent's: which tools it called is part of its state
    schemas: list[dict[str, Any]] = field(default_factory=list)

    async def turn(
        self, keeper: AgentStore, state: AgentState, prompt: Any, *, is_streamed: bool
    ) -> AsyncGenerator[AgentEvent]:
        """Run a turn to its end, from a prompt or, without one, from the state."""
        place = _Place(state)
        try:
            async with aclosing(self._turn(keeper, place, prompt, is_streamed=is_streamed)) as events:
                async for event in events:
                    yield event
        except (LeaseLostError, StoreError):
            raise  # it can't be saved, or another writer owns the session
        except ApprovalPendingError:
            raise  # nothing failed: it waits, and what it waits with is saved
        except GeneratorExit:
            raise  # the consumer of the events has stopped: all yielded events are saved
        except BaseException as error:
            is_failure = isinstance(error, Exception)
            stopped = {"why": "failed" if is_failure else "cancelled", "error": repr(error)[:1000], "at": get_now()}
            await keeper.save(place.state.with_metadata(STOPPED, stopped), str(stopped["why"]))
            raise

    async def _turn(
        self, keeper: AgentStore, place: _Place, prompt: Any, *, is_streamed: bool
    ) -> AsyncGenerator[AgentEvent]:
        if STOPPED in place.state.metadata:
            place.state = place.state.without_metadata(STOPPED)
        async with aclosing(self._close_interrupted(keeper, place)) as events:
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
            async with aclosing(self._ask_model(place.state, is_streamed=is_streamed)) as events:
                async for piece in events:
                    if isinstance(piece, str):
                        spoken += piece
                        yield AgentEvent(kind="text", text=piece, state=place.state)
                    else:
                        reply = piece
            if reply is None and not spoken:
                raise ModelError("the model's stream ended without a word: it must yield text, or a message at its end")
            place.state = _add_answer(place.state, reply or reply_of(spoken))  # text alone is the model's answer
            await keeper.save(place.state, "model")
            answer = place.state.messages[-1]
            yield AgentEvent(kind="message", text=str(answer.get("content") or ""), message=answer, state=place.state)
            calls = transcript.list_calls(answer)
            if not calls:
                yield AgentEvent(kind="end", text=place.state.text, state=place.state, stop="end")
                return
            for call in calls:
                async with aclosing(self._carried_out(keeper, place, call)) as events:
                    async for event in events:
                        yield event
        yield AgentEvent(kind="end", text=place.state.text, state=place.state, stop="max_steps")

    # -- the model -----------------------------------------------------------------------------------------------------

    async def _ask_model(self, state: AgentState, *, is_streamed: bool) -> AsyncGenerator[str | Reply]:
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

    async def _close_interrupted(self, keeper: AgentStore, place: _Place) -> AsyncGenerator[AgentEvent]:
        """Answer the interrupted calls of the conversation, by what is known of them."""
        calls = transcript.open_calls(place.state.messages)
        if not calls:
            return
        if self.on_open_call == OnOpenCall.EXECUTE:
            for call in calls:
                async with aclosing(self._carried_out(keeper, place, call, is_interrupted=True)) as events:
                    async for event in events:
                        yield event
            return
        state, outcomes = place.state, []
        for call in calls:  # in order: of equal ones, the first may be in doubt, and the next not started
            outcome = await self._find_known(keeper, state, call)
            state = self._with_answer(state, call, get_now(), outcome)
            outcomes.append((call, outcome, state))
        if self.on_open_call == OnOpenCall.RAISE:
            transcript_repair.refuse([(call, outcome) for call, outcome, _ in outcomes])
        for call, outcome, after in outcomes:
            place.state = after
            yield AgentEvent(kind="tool_result", text=outcome.text(), call=call, outcome=outcome, state=after)
        await keeper.save(place.state, "repaired")

    async def _find_known(self, keeper: AgentStore, state: AgentState, call: ToolCall) -> Outcome:
        tool = self.tools.get(call.name)
        refused = self._refusal(tool, call)
        if refused is not None or tool is None:
            return await self._refused_or_started(keeper, state, call, refused or transcript_repair.NOT_STARTED)
        decision = decision_of(state, tool, call)
        if tool.subagent is not None:
            began = decision.key in state.metadata.get(SUBAGENTS, {})
            return transcript_repair.UNKNOWN if began else transcript_repair.NOT_STARTED
        return await keeper.outcome(decision, state)

    async def _refused_or_started(
        self, keeper: AgentStore, state: AgentState, call: ToolCall, refused: Outcome
    ) -> Outcome:
        """Return the outcome of an interrupted call whose tool was changed or removed since."""
        if call.arguments is None:
            return refused  # it was refused then, too
        key = key_of_open_call(state, call)
        if key in state.metadata.get(SUBAGENTS, {}):
            return replace(transcript_repair.UNKNOWN, words=refused.words)
        started = await keeper.find_started(key, call, state)
        return refused if started is None else replace(started, words=refused.words)

    async def _carried_out(
        self, keeper: AgentStore, place: _Place, call: ToolCall, *, is_interrupted: bool = False
    ) -> AsyncGenerator[AgentEvent]:
        yield AgentEvent(kind="tool_call", call=call, state=place.state)
        tool, began = self.tools.get(call.name), get_now()
        outcomes: list[Outcome] = []
        before = place.state

        def finish(outcome: Outcome) -> AgentState:
            outcomes.append(outcome)
            return self._with_answer(before, call, began, outcome)

        refused = self._refusal(tool, call)
        if refused is not None or tool is None:
            refused = refused or transcript_repair.NOT_STARTED
            if is_interrupted:
                refused = await self._refused_or_started(keeper, before, call, refused)
            place.state = finish(refused)
            await keeper.save(place.state, call.name[:LONGEST_NAME])
        elif tool.subagent is not None:
            place.state = await self._delegate(keeper, tool, call, place, outcomes)
        else:
            place.state = await keeper.carry_out(decision_of(before, tool, call), before, finish)
        outcome = outcomes[-1]
        yield AgentEvent(kind="tool_result", text=outcome.text(), call=call, outcome=outcome, state=place.state)

    def _refusal(self, tool: Tool | None, call: ToolCall) -> Outcome | None:
        """Return the answer to a call that can't be made."""
        if tool is None:
            return Outcome(
                CallOutcome.FAILED, words=f"there is no tool {call.name!r:.60}; there are {', '.join(self.tools)}"
            )
        if call.arguments is None:
            return Outcome(CallOutcome.FAILED, words=NO_OBJECT)
        complaint = tool.find_argument_error(call.arguments)
        return None if complaint is None else Outcome(CallOutcome.FAILED, words=f"it can't be called so: {complaint}")

    def _with_answer(self, state: AgentState, call: ToolCall, began: str, outcome: Outcome) -> AgentState:
        answer = transcript.answer(replace(call, shape=transcript.OPENAI), outcome.text(), is_error=outcome.is_error)
        answer |= {"name": call.name, "metadata": {"fate": str(outcome.fate)}}
        closed = state.with_message_at(transcript.find_answer_place(state.messages, call), answer)
        if self.keeps_traces:
            failed = outcome.is_error
            trace = {"name": call.name, "key": call.id, "started_at": began, "ended_at": get_now(), "failed": failed}
            trace["error"] = outcome.words if failed else None
            closed = closed.with_metadata(TOOL_CALLS, [*state.metadata.get(TOOL_CALLS, ()), trace])
        return closed

    # -- its sub-agents ------------------------------------------------------------------------------------------------

    def may_have_changed_something(self, state: AgentState) -> bool:
        """Return whether the state has a call of a tool that does more than read."""
        asked = {call.name for message in state.messages for call in transcript.list_calls(message)}
        return any(tool.kind != "read" for name, tool in self.tools.items() if name in asked)

    async def _delegate(
        self, keeper: AgentStore, tool: Tool, call: ToolCall, place: _Place, outcomes: list[Outcome]
    ) -> AgentState:
        """Run a sub-agent's turn, from its start or from where it stopped; add its trace to the state."""
        loop: AgentLoop = replace(tool.subagent, invoke=self.invoke)  # awaited or not, as its caller
        key = decision_of(place.state, tool, call).key
        child = ChildAgentStore(keeper, key, place.state)
        state = await child.load()
        prompt = None if state is not None else (call.arguments or {}).get("prompt", "")
        state = state or AgentState.initial().with_metadata("began", format_moment(datetime.now(UTC)))
        end: AgentEvent | None = None
        try:
            async with aclosing(loop.turn(child, state, prompt, is_streamed=False)) as events:
                async for event in events:
                    state, end = event.state, event
        except (ApprovalPendingError, LeaseLostError, StoreError):
            raise
        except Exception as error:
            state = await child.load() or state
            fate = CallOutcome.UNKNOWN if loop.may_have_changed_something(state) else CallOutcome.FAILED
            outcome = Outcome(fate, words=f"{type(error).__name__}: {error}")
        except BaseException:
            place.state = child.state  # its state must not be lost when the turn is saved as cancelled
            raise
        else:
            assert end is not None
            outcome = Outcome(CallOutcome.FINISHED, end.text)
        outcomes.append(outcome)
        trace = _trace(tool, call, state, outcome)
        after = _without_child(child.state, key)
        after = self._with_answer(after, call, str(state.metadata["began"]), outcome).with_subagent_trace(trace)
        await keeper.save(after, tool.name)
        return after


class _Place:
    """The position of a turn: the state that is saved if it fails."""

    def __init__(self, state: AgentState) -> None:
        self.state = state


def _add_answer(state: AgentState, reply: Reply) -> AgentState:
    after = state.with_message(reply.message).with_step(state.step + 1)
    if reply.reasoning:
        after = after.with_reasoning(reply.reasoning)
    if reply.usage:
        after = after.with_metadata(USAGE, added_usage(state.metadata.get(USAGE, {}), reply.usage))
    return after


def _has_ended(state: AgentState) -> bool:
    """Return whether the turn has ended: the model spoke last, and called no tool."""
    last = state.messages[-1] if state.messages else None
    return last is None or (transcript.is_models(last) and not transcript.list_calls(last))


def _without_child(state: AgentState, key: str) -> AgentState:
    left = {item: kept for item, kept in state.metadata.get(SUBAGENTS, {}).items() if item != key}
    return state.with_metadata(SUBAGENTS, left) if left else state.without_metadata(SUBAGENTS)


def _trace(tool: Tool, call: ToolCall, state: AgentState, outcome: Outcome) -> SubagentTrace:
    calls = [
        ToolTrace(
            name=item["name"],
            key=item["key"],
            started_at=datetime.fromisoformat(item["started_at"]),
            ended_at=datetime.fromisoformat(item["ended_at"]),
            failed=item["failed"],
            error=item["error"],
        )
        for item in state.metadata.get(TOOL_CALLS, ())
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
