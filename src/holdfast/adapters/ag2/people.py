"""People's answers to AG2's questions: they are recorded, or wait in `holdfast approvals`."""

from __future__ import annotations

from typing import Any

from ag2.context import ConversationContext
from ag2.events import HumanInputRequest, HumanMessage, ToolApprovalRequest, ToolCallEvent

from holdfast.adapters.ag2.journal import TurnJournal
from holdfast.adapters.base.turn import CallPausedError, TurnEndedError

YES = "yes"
NO = "no"


async def ask_person(journal: TurnJournal, agent: str, request: HumanInputRequest, context: ConversationContext) -> str:
    """Return a person's answer from `holdfast approvals`; end the turn while there is none.

    A question about a tool call is approved or rejected. The note of the decision answers any other
    question; without a note, the answer is "yes" or "no".
    """
    call = await _find_call(request, context)
    try:
        if call is None:
            place = f"{context.tool_call_id or ''}:{request.content}"
            answer = await journal.turn.request_approval(agent, {"question": request.content}, call_id=place)
        else:
            answer = await journal.turn.request_approval(call.name, call.serialized_arguments, call_id=call.id)
    except TurnEndedError:
        await journal.wait_for_calls()
        raise
    if call is None:
        return answer.to_text(YES, NO)
    if answer.is_approved and answer.arguments is not None:
        if journal.is_begun(call.id):  # no plain function: the call can't be changed, and must not be made as it was
            return NO
        journal.changed_arguments[call.id] = dict(answer.arguments)
    return YES if answer.is_approved else NO


async def ask_hook(
    journal: TurnJournal, agent: str, request: HumanInputRequest, context: ConversationContext, hook: Any
) -> str:
    """Return the answer of the user's own hook, which is asked once. A hook that fails is asked again."""

    async def call() -> str:
        try:
            message: HumanMessage = await hook(request, context)
        except Exception as error:
            raise CallPausedError from error
        return str(message.content)

    key = f"{context.tool_call_id or ''}:{getattr(request, 'tool_call_id', '')}:{request.content}"
    return str(await journal.turn.call_once(f"{agent} asks a person", call, key=key))


async def _find_call(request: HumanInputRequest, context: ConversationContext) -> ToolCallEvent | None:
    """Return the tool call that a question is about, if it is about one with readable arguments."""
    if not isinstance(request, ToolApprovalRequest):
        return None
    for event in reversed(list(await context.stream.history.get_events())):
        if isinstance(event, ToolCallEvent) and event.id == request.tool_call_id:
            try:
                return event if isinstance(event.serialized_arguments, dict) else None
            except ValueError:
                return None
    return None
