"""Repair of a conversation that was cut off in the middle of its tool calls.

Models refuse a transcript in which a call has no answer, and an invented answer makes them repeat
completed work. So each open call is closed with the recorded facts: its result, if it finished;
that it was not started; or that its outcome is unknown, and whether it may be repeated all the
same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from holdfast.errors import OpenToolCallError, UsageError
from holdfast.model import transcript
from holdfast.model.transcript import ANTHROPIC, Message, ToolCall, ToolCallGroup


class CallOutcome(StrEnum):
    FINISHED = "finished"
    FAILED = "failed"  # it was tried, and was certainly not carried out
    NOT_STARTED = "not started"
    UNKNOWN = "unknown"
    MAY_BE_REPEATED = "may be repeated"  # the outcome is unknown, too; but twice is the same as once


class OnOpenCall(StrEnum):
    """The policy for open calls that have no result."""

    EXECUTE = "execute"  # those that were not started are carried out now; unknown ones never are
    ERROR = "error"  # they are answered by an error that states the facts
    RAISE = "raise"  # `OpenToolCallError`


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a call: its `value` if it finished, and a remark in words."""

    fate: CallOutcome
    value: Any = None
    words: str | None = None

    @property
    def is_error(self) -> bool:
        return self.fate is not CallOutcome.FINISHED

    def text(self) -> str:
        """Return the answer for the model, as text."""
        more = f" ({self.words})" if self.words else ""
        return (as_text(self.value) if self.fate is CallOutcome.FINISHED else _WORDS[self.fate]) + more


_WORDS = {
    CallOutcome.FAILED: "This call failed, and was not carried out.",
    CallOutcome.NOT_STARTED: "This call was not carried out: the agent was interrupted before it was started.",
    CallOutcome.UNKNOWN: "It is unknown whether this call was carried out: the agent was interrupted, or it failed, "
    "in the middle of it. Don't repeat it before you have found out.",
    CallOutcome.MAY_BE_REPEATED: "This call failed, or was interrupted, and may have been carried out all the same. "
    "To repeat it does no harm.",
}
NOT_STARTED = Outcome(CallOutcome.NOT_STARTED)
UNKNOWN = Outcome(CallOutcome.UNKNOWN)
MAY_BE_REPEATED = Outcome(CallOutcome.MAY_BE_REPEATED)

Truth = Callable[[ToolCall], Outcome] | Mapping[str, Outcome]


def repair(
    messages: Sequence[Message],
    truth: Truth,
    policy: str = OnOpenCall.ERROR,
    execute: Callable[[ToolCall], Any] | None = None,
) -> list[Message]:
    """Return the transcript with every call answered once, in the right place, and the rest unchanged.

    `truth` gives the outcome of a call: a function, or a mapping from ids. A call that it does not
    name was not started. With the policy "execute", `execute` makes the calls that were not
    started, in order: its result is the answer, and so is the exception that it raises. With
    "raise", an open call that did not finish raises `OpenToolCallError`.
    """
    policy = _policy(policy)
    if policy == OnOpenCall.EXECUTE and execute is None:
        raise UsageError("the policy 'execute' needs execute=..., a function that carries out a call")
    outcomes = []
    for call in transcript.open_calls(messages):
        outcome = truth(call) if callable(truth) else truth.get(call.id, NOT_STARTED)
        if policy == OnOpenCall.EXECUTE and execute is not None and outcome.fate is CallOutcome.NOT_STARTED:
            outcome = _execute_call(call, execute)
        outcomes.append((call, outcome))
    if policy == OnOpenCall.RAISE:
        refuse(outcomes)
    return close_transcript(messages, [outcome for _, outcome in outcomes])


def refuse(outcomes: Sequence[tuple[ToolCall, Outcome]]) -> None:
    """Raise `OpenToolCallError` if one of the calls has not finished."""
    unfinished = [(call, outcome) for call, outcome in outcomes if outcome.is_error]
    if unfinished:
        listed = ", ".join(f"{call.name!r:.60} ({call.id:.60}): {outcome.fate}" for call, outcome in unfinished)
        raise OpenToolCallError(
            f"the conversation was cut off in the middle of its tool calls: {listed}. Nothing was changed. Answer them "
            "yourself, or repair with the policy 'execute' or 'error'",
            tuple(call.id for call, _ in unfinished),
        )


def close_transcript(messages: Sequence[Message], outcomes: Sequence[Outcome]) -> list[Message]:
    """Return the transcript with its open calls answered by these outcomes, in order."""
    result = list(messages)
    left = list(outcomes)
    inserted = 0  # how many messages were inserted so far
    for turn in transcript.split_turns(messages):
        if turn.repeated:
            raise UsageError(
                f"the call {turn.repeated[0]!r:.60} is answered more than once: which answer counts "
                "can't be known. Remove the others"
            )
        if not turn.open:
            continue
        mine, left = left[: len(turn.open)], left[len(turn.open) :]
        inserted += _close(result, turn, inserted, mine)
    return result


def _close(result: list[Message], turn: ToolCallGroup, shift: int, outcomes: Sequence[Outcome]) -> int:
    """Insert the answers of a turn's open calls; return how many messages that added."""
    given = iter(outcomes)
    blocks: list[dict[str, Any]] = []
    added = 0
    place = turn.index + shift + 1  # after the answer of the call before, or right after the calls
    for call, answered in zip(turn.calls, turn.answers, strict=True):
        if answered is not None:
            place = max(place, answered[0] + shift + added + 1)
            continue
        outcome = next(given)
        made = transcript.answer(call, outcome.text(), is_error=outcome.is_error)
        if call.shape == ANTHROPIC:
            blocks.append(made)
        else:
            result.insert(place, made)
            place += 1
            added += 1
    return added + (_put_blocks(result, turn, shift, blocks) if blocks else 0)


def _put_blocks(result: list[Message], turn: ToolCallGroup, shift: int, blocks: Sequence[Mapping[str, Any]]) -> int:
    """Insert the answers of a turn as blocks, in the order of the calls.

    Anthropic requires the results of a message's calls right after it, before anything else that
    the user says. If some are there, the others join them.
    """
    first = next((answer[0] + shift for answer in turn.answers if answer is not None), None)
    if first is None:
        result.insert(turn.index + shift + 1, {"role": "user", "content": list(blocks)})
        return 1
    made = {block["tool_use_id"]: block for block in blocks}
    content: list[Any] = list(result[first]["content"])
    place = 0
    for call in turn.calls:
        if call.id in made:
            content.insert(place, made[call.id])
            place += 1
        else:
            positions = [at for at, item in enumerate(content) if _answers(item, call.id)]
            place = max([place, *(at + 1 for at in positions)])
    result[first] = {**result[first], "content": content}
    return 0


def _answers(block: Any, id_: str) -> bool:
    return isinstance(block, Mapping) and block.get("type") == "tool_result" and block.get("tool_use_id") == id_


def _execute_call(call: ToolCall, execute: Callable[[ToolCall], Any]) -> Outcome:
    if call.arguments is None:
        return Outcome(CallOutcome.FAILED, words="its arguments are no JSON object")
    try:
        return Outcome(CallOutcome.FINISHED, execute(call))
    except Exception as error:
        return Outcome(CallOutcome.UNKNOWN, words=f"{type(error).__name__}: {error}")


def _policy(given: str) -> str:
    if given not in tuple(OnOpenCall):
        raise UsageError(f"the policy is {given!r:.60}: it must be 'execute', 'error' or 'raise'")
    return given


def as_text(value: Any) -> str:
    """Return a result as a model reads it: text unchanged, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
