"""People's answers to interrupts, which wait in `holdfast approvals`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from strands.interrupt import Interrupt

from holdfast.adapters.base.turn import ApprovalAnswer
from holdfast.adapters.strands.journal import StrandsRecording, as_plain
from holdfast.model.transcript_repair import as_text

YES, NO = "y", "n"  # as Strands' own HumanInTheLoop reads them
LONGEST_SUMMARY = 500


async def answer_interrupts(recording: StrandsRecording, interrupts: Sequence[Interrupt]) -> list[dict[str, Any]]:
    """Return the responses to interrupts; end the turn while a person has not decided.

    The note of a decision is the response; without one it is "y" or "n". A tool call that was
    rejected is not carried out, whatever the program makes of the response.
    """
    calls = [_find_call(recording, item) for item in interrupts]
    asked, summaries = [], []
    for interrupt, call_id in zip(interrupts, calls, strict=True):
        reason = as_plain(interrupt.reason)
        tool, arguments = recording.calls[call_id] if call_id else (interrupt.name, {"reason": reason})
        asked.append((tool, arguments, interrupt.id))
        summaries.append(f"{interrupt.name}: {as_text(reason)}"[:LONGEST_SUMMARY] if reason else interrupt.name)
    answers = await recording.turn.request_approvals(asked, summaries=summaries)
    for call_id, answer in zip(calls, answers, strict=True):
        if call_id and not answer.is_approved:
            recording.refusals[call_id] = _refusal(answer)
        elif call_id and answer.arguments is not None:
            recording.changed_arguments[call_id] = answer.arguments
    return [
        {"interruptResponse": {"interruptId": item.id, "response": answer.to_text(YES, NO)}}
        for item, answer in zip(interrupts, answers, strict=True)
    ]


def _find_call(recording: StrandsRecording, interrupt: Interrupt) -> str | None:
    """Return the id of the tool call that an interrupt is about; None if it is about something else.

    Nothing but the interrupt's id names the call. Those of agents that are tools name the call of
    the agent first, so the last one counts.
    """
    text = f":{interrupt.id}:"
    found = {id_: max(text.rfind(f":{id_}:"), text.rfind(f":{quote(id_, safe='')}:")) for id_ in recording.calls}
    last = max(found, key=lambda id_: found[id_], default=None)
    return last if last is not None and found[last] >= 0 else None


def _refusal(answer: ApprovalAnswer) -> str:
    why = f": {answer.note}" if answer.note else ""
    return f"This call was not carried out: {answer.by or 'a person'} rejected it{why}"
