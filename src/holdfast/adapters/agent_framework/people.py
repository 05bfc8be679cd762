"""People's answers to the framework's questions, which wait in `holdfast approvals`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.adapters.agent_framework.middleware import TurnRecording
from holdfast.adapters.agent_framework.values import dump_value


def arguments_of(call: Any) -> dict[str, Any]:
    """Return the arguments of a call; those that the model did not write as an object, by a name of ours."""
    found = call.parse_arguments()
    return dict(found) if isinstance(found, Mapping) else {"input": call.arguments}


async def ask_about_calls(recording: TurnRecording, calls: Sequence[tuple[str, Mapping[str, Any], str]]) -> list[bool]:
    """Return whether people approve calls: tool, arguments and id of each.

    The turn ends while there is no answer. A person may change the arguments. The framework then
    asks about the changed ones, which that person has approved already.
    """
    open_calls = [call for call in calls if recording.changed_arguments.get(call[2]) != dict(call[1])]
    answers = dict(
        zip([call[2] for call in open_calls], await recording.turn.request_approvals(open_calls), strict=True)
    )
    for id_, answer in answers.items():
        if answer.is_approved and answer.arguments is not None:
            recording.changed_arguments[id_] = dict(answer.arguments)
    return [id_ not in answers or answers[id_].is_approved for _, _, id_ in calls]


async def answer_requests(recording: TurnRecording, requests: Sequence[Any]) -> dict[str, Any]:
    """Return the answers to a workflow's questions, by their ids.

    A question about a tool call is approved or rejected. Another one is answered by a text, the note
    of the decision, if the workflow wants a text; by the changed argument `response`, if there is
    one; or else by whether it was approved.
    """
    about_calls = [event for event in requests if _is_about_call(event)]
    calls = [event.data.function_call for event in about_calls]
    asked = [(call.name, arguments_of(call), call.call_id) for call in calls]
    approved = await ask_about_calls(recording, asked) if asked else []
    responses = {
        event.request_id: event.data.to_function_approval_response(is_approved)
        for event, is_approved in zip(about_calls, approved, strict=True)
    }
    others = [event for event in requests if not _is_about_call(event)]
    questions = [
        (str(other.source_executor_id), {"request": dump_value(other.data)}, other.request_id) for other in others
    ]
    answers = await recording.turn.request_approvals(questions) if questions else []
    for event, answer in zip(others, answers, strict=True):
        if answer.arguments is not None and "response" in answer.arguments:
            responses[event.request_id] = answer.arguments["response"]
        elif event.response_type is str:
            responses[event.request_id] = answer.to_text()
        else:
            responses[event.request_id] = answer.is_approved
    return responses


def _is_about_call(event: Any) -> bool:
    return getattr(event.data, "type", None) == "function_approval_request"
