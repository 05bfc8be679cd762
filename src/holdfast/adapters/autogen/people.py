"""People in a team: their answers are recorded, or wait in `holdfast approvals`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from autogen_agentchat.agents import ApprovalResponse, CodeExecutorAgent, UserProxyAgent

from holdfast.adapters.autogen.model import TurnStoppedError
from holdfast.adapters.base.turn import TurnEndedError

if TYPE_CHECKING:
    from holdfast.adapters.autogen.journal import TeamJournal


def ask_person(journal: TeamJournal, name: str) -> Callable[..., Awaitable[str]]:
    """Return an input function whose question waits in `holdfast approvals`.

    The note of the decision is the person's answer; without a note it is APPROVE or REJECT.
    """

    async def ask(prompt: str, _: Any = None) -> str:
        assert journal.turn is not None
        try:
            answer = await journal.turn.request_approval(name, {"prompt": prompt}, call_id=name)
        except TurnEndedError as error:
            raise TurnStoppedError(str(error)) from error
        return answer.to_text()

    return ask


def record_input(journal: TeamJournal, agent: UserProxyAgent) -> Callable[..., Awaitable[str]]:
    """Return an input function that asks the user's own one, once."""
    given, is_async = agent.input_func, agent._is_async

    async def ask(prompt: str, cancellation_token: Any = None) -> str:
        async def call() -> Any:
            if is_async:
                return await given(prompt, cancellation_token)
            return await asyncio.to_thread(given, prompt)

        return str(await _call_once(journal, agent.name, call, prompt, str))

    return ask


def record_approval(journal: TeamJournal, agent: CodeExecutorAgent) -> Callable[[Any], Awaitable[ApprovalResponse]]:
    """Return an approval function for code that asks the user's own one, once."""
    # Private: an agent does not show the function that it asks.
    given, is_async = agent._approval_func, agent._approval_func_is_async

    async def approve(request: Any) -> ApprovalResponse:
        async def call() -> Any:
            response = await given(request) if is_async else given(request)
            return response.model_dump(mode="json")

        load = ApprovalResponse.model_validate
        response: ApprovalResponse = await _call_once(journal, f"{agent.name} approval", call, request.code, load)
        return response

    return approve


async def _call_once(
    journal: TeamJournal, name: str, call: Callable[[], Any], key: str, load: Callable[[Any], Any]
) -> Any:
    assert journal.turn is not None
    try:
        return await journal.turn.call_once(name, call, key=key, load=load)
    except TurnEndedError as error:
        raise TurnStoppedError(str(error)) from error
