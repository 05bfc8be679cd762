"""Decisions about a conversation before it moves to another framework. Pure.

Each function returns the conversation as decided, and says what that loses: the turn that was cut
off, calls without results, handoffs between the source's agents, and tools that the target lacks.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from holdfast.errors import ConversionError, OpenToolCallError
from holdfast.model.conversation import MessagePart, TextPart, ToolCallPart, ToolResponsePart, TranscriptMessage
from holdfast.model.loss import Loss, make_loss
from holdfast.model.provider_names import valid_id, valid_name
from holdfast.model.tool_map import ToolMap, find_misfits
from holdfast.model.transcript import quote_object
from holdfast.model.transcript_order import describe_call, describe_result
from holdfast.model.transcript_repair import UNKNOWN, Outcome

DANGLING = ("ledger", "answer", "execute", "drop", "raise")
"""What becomes of calls without results: the values of `dangling=`."""
Messages = Sequence[TranscriptMessage]

# What frameworks call the tools that hand a conversation to another agent, and their arguments.
_HANDOFF = re.compile(r"(?:transfer|handoff|hand_off)(?:_back)?_to_(.+)", re.IGNORECASE)
_TARGETS = ("agent_name", "agent", "to", "target", "target_agent")  # arguments that name the other agent
_MESSAGES = frozenset(  # arguments that tell it something
    (
        *("context", "input", "instructions", "message", "query", "question", "reason", "summary"),
        *("task", "task_description"),
    )
)
# The words of results that say no more than that the conversation was handed over.
_ACKNOWLEDGED = frozenset(
    (
        *("adopting", "agent", "assistant", "back", "control", "conversation", "done", "hand", "handed", "handing"),
        *("handoff", "handoff_to", "immediately", "is", "none", "now", "null", "of", "off", "ok", "over", "result"),
        *("role", "success", "successfully", "the", "to", "transfer", "transferred", "transferring", "true"),
    )
)


class MoveResult(NamedTuple):
    """A conversation after a decision, and what was lost by it."""

    messages: list[TranscriptMessage]
    losses: list[Loss]


def unique_ids(messages: Messages) -> tuple[list[TranscriptMessage], dict[str, str]]:
    """Return the conversation with an id of its own for every call, that every provider takes.

    A result belongs to the nearest turn of the model before it that has calls of its id: some models
    count their calls from the beginning in each turn. If that turn has several such calls, results
    are theirs in order. The second value has the new ids by the old ones.
    """
    used: set[str] = set()
    waiting: dict[str, tuple[int, deque[str]]] = {}  # the turn that has calls of an id, and those without a result
    last: dict[str, str] = {}
    renamed: dict[str, str] = {}
    replaced: Counter[str] = Counter()
    turn = 0

    def make_id(given: str) -> str:
        made = valid_id(given, used, replaced[given])
        used.add(made)
        replaced[given] += made != given
        return made

    def rename(part: MessagePart) -> MessagePart:
        if isinstance(part, ToolCallPart):
            made = last[part.id] = make_id(part.id)
            if made != part.id:
                renamed[part.id] = made
            if part.id not in waiting or waiting[part.id][0] != turn:
                waiting[part.id] = turn, deque()
            waiting[part.id][1].append(made)
            return replace(part, id=made)
        if isinstance(part, ToolResponsePart):
            if part.id not in last:  # it answers no call, nor one that comes later
                return replace(part, id=make_id(f"stray {part.id}"))
            _, open_ids = waiting[part.id]
            return replace(part, id=open_ids.popleft() if open_ids else last[part.id])
        return part

    made: list[TranscriptMessage] = []
    before = ""
    for message in messages:
        turn += message.role == "assistant" and before != "assistant"
        before = message.role
        made.append(replace(message, parts=tuple(map(rename, message.parts))))
    return made, renamed


def cut_last_turn(messages: Messages, *, is_finished: bool) -> MoveResult:
    """Leave out the turn that was not finished: everything from the user's last message on."""
    if is_finished and not _is_open(messages):
        return MoveResult(list(messages), [])
    begins = max((at for at, item in enumerate(messages) if item.role == "user"), default=0)
    while begins and messages[begins - 1].role == "user":
        begins -= 1
    lost = len(messages) - begins
    return MoveResult(list(messages[:begins]), [make_loss("unfinished_turn", f"messages.{begins}", f"{lost} messages")])


def _is_open(messages: Messages) -> bool:
    last = messages[-1] if messages else None
    return last is not None and (last.role != "assistant" or bool(find_open(messages)))


def find_open(messages: Messages) -> list[ToolCallPart]:
    """Return the calls without results, in order. Ids must be unique."""
    answered = {part.id for message in messages if message.role != "system" for part in message.tool_responses}
    return [
        call
        for message in messages
        if message.role == "assistant"
        for call in message.tool_calls
        if call.id not in answered
    ]


# -- calls without results -----------------------------------------------------------------------------------------


def close_calls(messages: Messages, policy: str, outcome_of: Callable[[ToolCallPart], Outcome | None]) -> MoveResult:
    """Answer or drop calls without results. `outcome_of` tells what is known about a call, or None.

    What is known is used with every policy: a result is never thrown away. Else "answer" tells the
    model that the outcome is unknown, "drop" leaves the call out, and the others raise.
    """
    answers: dict[str, ToolResponsePart] = {}
    dropped: set[str] = set()
    losses: list[Loss] = []
    refused: list[ToolCallPart] = []
    for call in find_open(messages):
        outcome = outcome_of(call)
        where = f"call {call.id}"
        if outcome is None and policy == "drop":
            dropped.add(call.id)
            losses.append(make_loss("open_calls", where, call.name))
            continue
        if outcome is None and policy == "answer":
            outcome = UNKNOWN
            losses.append(make_loss("unknown_outcomes", where, call.name))
        if outcome is None:
            refused.append(call)
            continue
        text = TextPart(content=outcome.text())
        answers[call.id] = ToolResponsePart(id=call.id, name=call.name, content=(text,), is_error=outcome.is_error)
    if refused:
        raise _refusal(refused)
    closed: list[TranscriptMessage] = []
    for message in messages:
        kept = tuple(p for p in message.parts if not (isinstance(p, ToolCallPart) and p.id in dropped))
        closed.append(replace(message, parts=kept))
        made = [answers.pop(call.id) for call in message.tool_calls if call.id in answers]
        closed += [TranscriptMessage(role="tool", parts=(item,)) for item in made]
    return MoveResult(closed, losses)


def _refusal(calls: Sequence[ToolCallPart]) -> OpenToolCallError:
    listed = ", ".join(f"{call.name!r:.60} ({call.id:.60})" for call in calls)
    return OpenToolCallError(
        f"the conversation ends in the middle of tool calls whose results are not recorded: {listed}. Nothing was "
        "changed. Continue the source until they have results, or choose what becomes of them: dangling='answer' "
        "(the model reads that the outcome is unknown), 'drop', or 'execute' within a run; or at='last_turn'",
        tuple(call.id for call in calls),
    )


def refuse_hosted(messages: Messages) -> None:
    """Raise for calls that a provider carries out and whose results only it has."""
    answered = {part.id for item in messages for part in item.tool_responses}
    for number, message in enumerate(messages):
        for call in message.tool_calls:
            if call.hosted and call.id not in answered:
                raise ConversionError(
                    f"message {number} has the call {call.id:.60} of {call.name!r:.60}, which the model's provider "
                    "carries out: its result is stored there, and no other provider can read it. Nothing was changed. "
                    "Move a checkpoint before that call, or let the source tell the result in a message first"
                )


# -- handoffs and tools --------------------------------------------------------------------------------------------


def fold_handoffs(messages: Messages, tools: ToolMap, effects: Collection[str] = ()) -> MoveResult:
    """Replace the calls that hand the conversation to another agent by notes with their details.

    A tool with other arguments is no handoff, whatever its name is, and neither is one that has
    effects: `effects` has the names of these.
    """
    answered = {part.id: part for message in messages for part in message.tool_responses}
    notes: dict[str, str] = {}
    acknowledged: set[str] = set()
    for message in messages:
        for call in message.tool_calls:
            target = None if tools.find(call.name) is not None or call.name in effects else _handoff_target(call)
            if target is None:
                continue
            details = {name: value for name, value in (call.arguments or {}).items() if name not in _TARGETS}
            notes[call.id] = f"[handed over to {target}{f', with {quote_object(details)}' if details else ''}]"
            if call.id in answered and _is_acknowledgement(answered[call.id], target):
                acknowledged.add(call.id)
    return _replace_calls(messages, notes, "handoffs", without_result=acknowledged)


def _handoff_target(call: ToolCallPart) -> str | None:
    """Return the agent that a call hands the conversation to; None if it is no handoff."""
    match = _HANDOFF.fullmatch(call.name)
    if match is None or call.arguments is None or not call.arguments.keys() <= {*_TARGETS, *_MESSAGES}:
        return None
    named = next((call.arguments[name] for name in _TARGETS if isinstance(call.arguments.get(name), str)), None)
    return named or match[1]


def _is_acknowledgement(result: ToolResponsePart, target: str) -> bool:
    """Return whether a result says no more than that the conversation was handed over."""
    if result.is_error or not all(isinstance(part, TextPart) for part in result.content):
        return False
    text = " ".join(part.content for part in result.content if isinstance(part, TextPart))
    return {*_words(text)} <= _ACKNOWLEDGED | {*_words(target)}


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def map_tools(messages: Messages, tools: ToolMap, hashes: Mapping[str, str]) -> MoveResult:
    """Give tools their names in the target; replace calls of tools that it lacks by notes.

    `hashes` has the schema hashes that the source has recorded, by its tools.
    """
    losses: list[Loss] = []
    missing: dict[str, str] = {}
    for number, message in enumerate(messages):
        for place, call in enumerate(message.parts):
            if not isinstance(call, ToolCallPart):
                continue
            path = f"messages.{number}.parts.{place}"
            if tools.is_missing(call.name):
                missing[call.id] = describe_call(call)
            tool = tools.find(call.name)
            if tool is None:
                continue
            recorded = hashes.get(call.name)
            if recorded is not None and tool.schema_hash is not None and tool.schema_hash != recorded:
                losses.append(make_loss("tool_schemas", path, f"the schema hash of {call.name} differs"))
            losses += [make_loss("tool_schemas", path, why) for why in find_misfits(tool, call)]
    described = _replace_calls(messages, missing, "tool_calls")
    renamed = [_rename(message, tools.name_in_target) for message in described.messages]
    return MoveResult(renamed, [*described.losses, *losses])


def shorten_names(messages: Messages) -> tuple[list[TranscriptMessage], dict[str, str]]:
    """Return the conversation with names of tools and agents that every provider takes."""
    renamed: dict[str, str] = {}

    def shorten(name: str) -> str:
        made = valid_name(name)
        if made != name:
            renamed[name] = made
        return made

    return [
        replace(_rename(message, shorten), author=None if message.author is None else shorten(message.author))
        for message in messages
    ], renamed


def _rename(message: TranscriptMessage, rename: Callable[[str], str]) -> TranscriptMessage:
    def part_of(part: MessagePart) -> MessagePart:
        if isinstance(part, ToolCallPart) or (isinstance(part, ToolResponsePart) and part.name):
            return replace(part, name=rename(part.name))
        return part

    return replace(message, parts=tuple(map(part_of, message.parts)))


def _replace_calls(
    messages: Messages, notes: Mapping[str, str], kind: str, *, without_result: Collection[str] = ()
) -> MoveResult:
    """Replace calls by notes in the model's text; their results become notes, too, or are left out."""
    if not notes:
        return MoveResult(list(messages), [])
    losses: list[Loss] = []
    made: list[TranscriptMessage] = []
    for number, message in enumerate(messages):
        parts: list[MessagePart] = []
        for place, part in enumerate(message.parts):
            if isinstance(part, ToolCallPart) and part.id in notes:
                losses.append(make_loss(kind, f"messages.{number}.parts.{place}", part.name))
                parts.append(TextPart(content=notes[part.id]))
            elif isinstance(part, ToolResponsePart) and part.id in notes:
                parts += () if part.id in without_result else describe_result(part)
            else:
                parts.append(part)
        role = message.role
        if role == "tool" and parts and not any(isinstance(part, ToolResponsePart) for part in parts):
            role = "user"
        if parts or not message.parts:
            made.append(replace(message, role=role, parts=tuple(parts)))
    return MoveResult(made, losses)
