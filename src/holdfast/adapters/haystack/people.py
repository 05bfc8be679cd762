"""People's answers: questions of a `ConfirmationHook` wait in `holdfast approvals`."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from haystack.components.agents import State
from haystack.hooks.human_in_the_loop import BlockingConfirmationStrategy, ConfirmationHook, ConfirmationUIResult

from holdfast.adapters.base.digest import digest
from holdfast.adapters.base.turn import ApprovalAnswer, FrameworkTurn


class ApprovalUI:
    """The answers that people have given, where Haystack asks at a terminal."""

    def __init__(self, answers: Mapping[str, list[ApprovalAnswer]]) -> None:
        self._answers = answers

    def get_user_confirmation(
        self, tool_name: str, tool_description: str, tool_params: dict[str, Any]
    ) -> ConfirmationUIResult:
        answer = self._answers[digest([tool_name, tool_params])].pop(0)
        if not answer.is_approved:
            return ConfirmationUIResult(action="reject", feedback=answer.note)
        if answer.arguments is None:
            return ConfirmationUIResult(action="confirm", feedback=answer.note)
        return ConfirmationUIResult(action="modify", feedback=answer.note, new_tool_params=dict(answer.arguments))


async def ask_people(turn: FrameworkTurn, hook: ConfirmationHook, state: State, place: str) -> ConfirmationHook:
    """Return a hook that has people's answers; end the turn while there are none.

    All questions of a step wait at the same time. A strategy of the user's own asks by itself.
    """
    messages = state.data.get("messages") or []
    calls = messages[-1].tool_calls if messages else ()
    tools = {tool.name: tool for tool in state.data.get("tools") or ()}
    questions: list[tuple[str, Mapping[str, Any], str]] = []
    for number, call in enumerate(calls):
        strategy = _find_strategy(hook.confirmation_strategies, call.tool_name)
        if call.tool_name in tools and isinstance(strategy, BlockingConfirmationStrategy):
            description, arguments = tools[call.tool_name].description, dict(call.arguments)
            policy = strategy.confirmation_policy
            if policy.should_ask(tool_name=call.tool_name, tool_description=description, tool_params=arguments):
                questions.append((call.tool_name, arguments, f"{place}:{number}"))
    answers: dict[str, list[ApprovalAnswer]] = {}
    for (tool, asked, _), answer in zip(questions, await turn.request_approvals(questions), strict=True):
        answers.setdefault(digest([tool, asked]), []).append(answer)
    copied = copy.copy(hook)
    copied.confirmation_strategies = {
        names: _with_answers(strategy, ApprovalUI(answers)) for names, strategy in hook.confirmation_strategies.items()
    }
    return copied


def _find_strategy(strategies: Mapping[Any, Any], tool: str) -> Any:
    """Return the strategy of a tool, found as Haystack does it: by name, in a tuple of names, or for all."""
    shared = (value for names, value in strategies.items() if isinstance(names, tuple) and tool in names)
    return strategies.get(tool) or next(shared, None) or strategies.get("*")


def _with_answers(strategy: Any, answers: ApprovalUI) -> Any:
    if not isinstance(strategy, BlockingConfirmationStrategy):
        return strategy
    copied = copy.copy(strategy)
    copied.confirmation_ui = answers
    return copied
