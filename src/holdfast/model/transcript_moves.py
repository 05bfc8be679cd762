"""Decisions about a conversation before it moves to another framework. Pure.

Each function returns the conversation as decided, and says what that loses: the turn that was cut
off, calls without results, handoffs between the source's agents, and tools that the target lacks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from holdfast.errors import OpenToolCallError
from holdfast.model.conversation import MessagePart, TextPart, ToolCallPart, ToolResponsePart, TranscriptMessage
from holdfast.model.loss import Loss, make_loss
from holdfast.model.provider_names import valid_id, valid_name
from holdfast.model.tool_map import ToolMap, find_misfits
from holdfast.model.transcript_order import describe_call, describe_result
from holdfast.model.transcript_repair import UNKNOWN, Outcome

DANGLING = ("ledger", "answer", "execute", "drop", "raise")
"""What becomes of calls without results: the values of `dangling=`."""
Messages = Sequence[TranscriptMessage]

# What frameworks call the tools that hand a conversation to another agent.
_HANDOFF = re.compile(r"(?:transfer|handoff|hand_off)(?:_back)?_to_(.+)", re.IGNORECASE)
_TARGETS = ("agent_name", "agent", "to", "target", "target_agent")  # arguments that name the other agent


class Decided(NamedTuple):
    """A conversation after a decision, and what was lost by it."""

    messages: list[TranscriptMessage]
    losses: list[Loss]


def unique_ids(messages: Messages) -> tuple[list[TranscriptMessage], dict[str, str]]:
    """Return the conversation with an id of its own for every call, that every provider takes.

    A result belongs to the nearest call of its id before it: some models count their calls from the
    beginning in each turn. The second value has the new ids by the old ones.
    """
    used: set[str] = set()
    current: dict[str, str] = {}
    renamed: dict[str, str] = {}

    def rename(part: MessagePart) -> MessagePart:
        if isinstance(part, ToolCallPart):
            made = valid_id(part.id, used)
            used.add(made)
            current[part.id] = made
            if made != part.id:
                renamed[part.id] = made
            return replace(part, id=made)
        if isinstance(part, ToolResponsePart):
            if part.id not in current:  # it answers no call, nor one that comes later
                made = valid_id(f"stray {part.id}", used)
                used.add(made)
                return replace(part, id=made)
            return replace(part, id=current[part.id])
        return part

    return [replace(one, parts=tuple(map(rename, one.parts))) for one in messages], renamed


def cut_last_turn(messages: Messages, *, is_finished: bool) -> Decided:
    """Leave out the turn that was not finished: everything from the user's last message on."""
    if is_finished and not _is_open(messages):
        return Decided(list(messages), [])
    begins = max((at for at, one in enumerate(messages) if one.role == "user"), default=0)
    while begins and messages[begins - 1].role == "user":
        begins -= 1
    lost = len(messages) - begins
    return Decided(list(messages[:begins]), [make_loss("unfinished_turn", f"messages.{begins}", f"{lost} messages")])


def _is_open(messages: Messages) -> bool:
    last = messages[-1] if messages else None
    return last is not None and (last.role != "assistant" or bool(find_open(messages)))


def find_open(messages: Messages) -> list[ToolCallPart]:
    """Return the calls without results, in order. Ids must be unique."""
    answered = {part.id for one in messages if one.role != "system" for part in one.tool_responses}
    return [call for one in messages if one.role == "assistant" for call in one.tool_calls if call.id not in answered]


# -- calls without results -----------------------------------------------------------------------------------------


def close_calls(messages: Messages, policy: str, outcome_of: Callable[[ToolCallPart], Outcome | None]) -> Decided:
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
        closed += [TranscriptMessage(role="tool", parts=(one,)) for one in made]
    return Decided(closed, losses)


def _refusal(calls: Sequence[ToolCallPart]) -> OpenToolCallError:
    told = ", ".join(f"{call.name!r:.60} ({call.id:.60})" for call in calls)
    return OpenToolCallError(
        f"the conversation ends in the middle of tool calls whose results are not recorded: {told}. Nothing was "
        "changed. Continue the source until they have results, or choose what becomes of them: dangling='answer' "
        "(the model reads that the outcome is unknown), 'drop', or 'execute' within a run; or at='last_turn'",
        tuple(call.id for call in calls),
    )


# -- handoffs and tools --------------------------------------------------------------------------------------------


def fold_handoffs(messages: Messages, tools: ToolMap) -> Decided:
    """Replace the calls that hand the conversation to another agent by notes, with their results."""
    folded = {
        call.id: target
        for message in messages
        for call in message.tool_calls
        if tools.find(call.name) is None and (target := _handoff_target(call)) is not None
    }
    notes = {id_: f"[handed over to {target}]" for id_, target in folded.items()}
    return _replace_calls(messages, notes, "handoffs", with_results=False)


def _handoff_target(call: ToolCallPart) -> str | None:
    match = _HANDOFF.fullmatch(call.name)
    if match is None:
        return None
    arguments = call.arguments or {}
    named = next((str(arguments[name]) for name in _TARGETS if isinstance(arguments.get(name), str)), None)
    return named or match[1]


def map_tools(messages: Messages, tools: ToolMap, hashes: Mapping[str, str]) -> Decided:
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
    described = _replace_calls(messages, missing, "tool_calls", with_results=True)
    renamed = [_rename(message, tools.name_in_target) for message in described.messages]
    return Decided(renamed, [*described.losses, *losses])


def shorten_names(messages: Messages) -> tuple[list[TranscriptMessage], dict[str, str]]:
    """Return the conversation with names of tools and agents that every provider takes."""
    renamed: dict[str, str] = {}

    def shorten(name: str) -> str:
        made = valid_name(name)
        if made != name:
            renamed[name] = made
        return made

    return [
        replace(_rename(one, shorten), author=None if one.author is None else shorten(one.author)) for one in messages
    ], renamed


def _rename(message: TranscriptMessage, rename: Callable[[str], str]) -> TranscriptMessage:
    def part_of(part: MessagePart) -> MessagePart:
        if isinstance(part, ToolCallPart) or (isinstance(part, ToolResponsePart) and part.name):
            return replace(part, name=rename(part.name))
        return part

    return replace(message, parts=tuple(map(part_of, message.parts)))


def _replace_calls(messages: Messages, notes: Mapping[str, str], kind: str, *, with_results: bool) -> Decided:
    """Replace calls by notes in the model's text; their results become notes, too, or are left out."""
    if not notes:
        return Decided(list(messages), [])
    losses: list[Loss] = []
    made: list[TranscriptMessage] = []
    for number, message in enumerate(messages):
        parts: list[MessagePart] = []
        for place, part in enumerate(message.parts):
            if isinstance(part, ToolCallPart) and part.id in notes:
                losses.append(make_loss(kind, f"messages.{number}.parts.{place}", part.name))
                parts.append(TextPart(content=notes[part.id]))
            elif isinstance(part, ToolResponsePart) and part.id in notes:
                parts += describe_result(part) if with_results else ()
            else:
                parts.append(part)
        role = message.role
        if role == "tool" and parts and not any(isinstance(part, ToolResponsePart) for part in parts):
            role = "user"
        if parts or not message.parts:
            made.append(replace(message, role=role, parts=tuple(parts)))
    return Decided(made, losses)
