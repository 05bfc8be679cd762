"""The stream of a turn: the events of its runs, one after the other, as one `RunResultStreaming`."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from typing import Any, Literal

from agents import Agent, ModelResponse, RunContextWrapper, RunItem, RunResult, RunResultStreaming
from agents.stream_events import AgentUpdatedStreamEvent, RawResponsesStreamEvent, RunItemStreamEvent, StreamEvent

from holdfast.adapters.openai_agents.journal import AgentJournal
from holdfast.adapters.openai_agents.response import dump_response, replay_events

_NAMES = {
    "message_output_item": "message_output_created",
    "tool_call_item": "tool_called",
    "tool_call_output_item": "tool_output",
    "handoff_call_item": "handoff_requested",
    "handoff_output_item": "handoff_occured",
    "reasoning_item": "reasoning_item_created",
    "mcp_list_tools_item": "mcp_list_tools",
    "mcp_approval_request_item": "mcp_approval_requested",
    "mcp_approval_response_item": "mcp_approval_response",
    "tool_search_call_item": "tool_search_called",
    "tool_search_output_item": "tool_search_output_created",
}
_SHOWN = (
    "new_items", "raw_responses", "final_output", "input_guardrail_results", "output_guardrail_results",
    "tool_input_guardrail_results", "tool_output_guardrail_results", "context_wrapper", "input",
)  # fmt: skip


class ResumableStream(RunResultStreaming):
    """The result of a streamed turn. It is complete when the turn is recorded."""

    def __init__(self, agent: Agent[Any], given: Any) -> None:
        super().__init__(
            input=given,
            new_items=[],
            raw_responses=[],
            final_output=None,
            input_guardrail_results=[],
            output_guardrail_results=[],
            tool_input_guardrail_results=[],
            tool_output_guardrail_results=[],
            context_wrapper=RunContextWrapper(context=None),
            current_agent=agent,
            current_turn=0,
            max_turns=None,
            _current_agent_output_schema=None,
            trace=None,
        )
        self._events: asyncio.Queue[StreamEvent | None] = asyncio.Queue()
        self._turn: asyncio.Task[None] | None = None
        self._followed: RunResultStreaming | None = None
        self._is_cancelled = False

    def begin(self, turn: Coroutine[Any, Any, Any]) -> None:
        """Take the turn in a task: it continues whether the events are read or not."""
        self._turn = asyncio.create_task(self._take(turn))

    async def follow(self, result: RunResultStreaming, journal: AgentJournal) -> None:
        """Pass on the events of a run until it ends."""
        self._followed = result
        async for event in result.stream_events():
            self._show(result)
            self.current_agent = journal.original_of(result.current_agent)
            self._events.put_nowait(_with_originals(event, journal))
        if self._is_cancelled:
            raise asyncio.CancelledError  # the turn is not finished

    async def stream_events(self) -> AsyncIterator[StreamEvent]:
        """Yield the events. A reader that is cancelled while it waits for one cancels the turn, as in the SDK."""
        while (event := await self._next_event()) is not None:
            yield event
        self._events.put_nowait(None)  # for the next reader
        if self._turn is not None and not self._is_cancelled:
            await self._turn

    async def _next_event(self) -> StreamEvent | None:
        try:
            return await self._events.get()
        except asyncio.CancelledError:
            self.cancel()
            if self._turn is not None:
                await asyncio.wait([self._turn])  # it lets go of the session
            raise

    def cancel(self, mode: Literal["immediate", "after_turn"] = "immediate") -> None:
        """Stop the turn, which is not finished then: the same call continues it."""
        self._is_cancelled = True
        if mode == "after_turn" and self._followed is not None:
            self._followed.cancel(mode)
        elif self._turn is not None:
            self._turn.cancel()

    async def _take(self, turn: Coroutine[Any, Any, Any]) -> None:
        try:
            result = await turn
            self._show(result)
            self.current_agent = result.last_agent
            if isinstance(result, RunResult):  # a recorded one, which nothing was streamed of
                for event in _events_of(result.new_items, result.raw_responses):
                    self._events.put_nowait(event)
        finally:
            self.is_complete = True
            self._events.put_nowait(None)

    def _show(self, result: Any) -> None:
        for name in _SHOWN:
            setattr(self, name, getattr(result, name))
        self.current_turn = getattr(result, "current_turn", 0)


def _with_originals(event: StreamEvent, journal: AgentJournal) -> StreamEvent:
    if isinstance(event, AgentUpdatedStreamEvent):
        return AgentUpdatedStreamEvent(new_agent=journal.original_of(event.new_agent))
    if isinstance(event, RunItemStreamEvent):
        item: Any = copy.copy(event.item)  # the run continues with its own
        for name in ("agent", "source_agent", "target_agent"):
            if getattr(item, name, None) is not None:
                setattr(item, name, journal.original_of(getattr(item, name)))
        return RunItemStreamEvent(name=event.name, item=item)
    return event


def _events_of(new_items: Sequence[RunItem], responses: Sequence[ModelResponse]) -> Iterator[StreamEvent]:
    """Yield the events of a finished turn: each answer of the model, then its items and their results."""
    waiting, left = iter(responses), 0
    agent = None
    for item in new_items:
        if item.agent is not agent:
            agent = item.agent
            yield AgentUpdatedStreamEvent(new_agent=agent)
        if item.type not in (
            "tool_call_output_item",
            "handoff_output_item",
            "mcp_approval_response_item",
            "input_item",
        ):
            if left == 0:
                response = next(waiting, None)
                if response is not None:
                    left = len(response.output)
                    for event in replay_events(dump_response(response)):
                        yield RawResponsesStreamEvent(data=event)
            left -= 1
        if item.type in _NAMES:
            yield RunItemStreamEvent(name=_NAMES[item.type], item=item)  # type: ignore[arg-type]  # Literal
