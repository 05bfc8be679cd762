"""The way back: an earlier state of the target's own framework, and what was said since.

A session that came from framework A to B, and goes back to A, continues A's own state: its channels,
its position in a team, what a conversation does not tell. Only the messages since are converted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

from holdfast.format.state.record import StoredRecord
from holdfast.model import ids
from holdfast.model.conversation import MessagePart, Transcript, TranscriptMessage
from holdfast.model.conversion_target import ConversionTarget
from holdfast.model.framework import Framework
from holdfast.model.native_continuation import NativeContinuation, find_open_ids, find_own_names
from holdfast.model.transcript_fit import fit_transcript
from holdfast.model.transcript_moves import shorten_names, unique_ids
from holdfast.model.transcript_order import group_messages
from holdfast.operations import lookup
from holdfast.operations.context import StoreContext
from holdfast.operations.lineage import live_line
from holdfast.operations.move_source import (
    TURN,
    LoadConverter,
    MoveSource,
    load_checkpoint,
    plain_context,
    read_transcript,
)

CONVERTED = "converted"
"""The key of a first checkpoint's metadata that says where the session came from."""
# Losses after which the conversation is not the one that the earlier state has.
_REWRITTEN = frozenset(("unfinished_turn", "open_calls"))
# Losses after which its turns are not those of the earlier state.
_REGROUPED = frozenset(("handoffs", "tool_calls", "stray_results", "repeated_results"))


class NativeState(NamedTuple):
    """An earlier state of the target, the messages since, and how these continue it."""

    checkpoint_id: str
    state: Mapping[str, Any]
    messages: Sequence[TranscriptMessage]
    continuation: NativeContinuation


async def list_origins(
    ctx: StoreContext, record: StoredRecord
) -> AsyncIterator[tuple[StoredRecord, Mapping[str, Any]]]:
    """Yield the first checkpoint of each conversion that led here, the last one first, and what it says."""
    async for at in live_line(ctx, record):
        about = ctx.codec.decode(at.header["meta"]) if "meta" in at.header else {}
        found = about.get(CONVERTED) if isinstance(about, Mapping) else None
        if isinstance(found, Mapping):
            yield at, found


async def find_native(
    ctx: StoreContext,
    source: MoveSource,
    messages: Sequence[TranscriptMessage],
    target: ConversionTarget,
    load: LoadConverter,
) -> NativeState | str | None:
    """Return the target's earlier state, if the session came from there.

    A text is the id of such a state that can't be continued: the conversation was not only appended
    to, the state has expired, or there was a third framework in between. None: there is none.
    `messages` are the source's, with unique ids and every call answered.
    """
    plain = plain_context(ctx)
    origins = [origin async for origin in list_origins(plain, source.record)]
    came = [origin for origin in origins if origin[1].get("from") in (target.name, str(target.framework))]
    if not came:
        return None
    first, about = came[0]
    named = str(about.get("source"))
    if came[0] is not origins[0]:  # from there to a third framework, and from that one here
        return named
    lost = _kinds_of(about)
    before = None if first.parent is None else await lookup.find_record(plain, first.parent, first.tree)
    if before is None or await lookup.is_expired(plain, before) or lost & _REWRITTEN:
        return named
    native = await load_checkpoint(plain, before)
    state = native.execution_state
    if not isinstance(state, Mapping):
        return named
    is_cut_off = state.get(TURN) is not None
    at_rest = replace(native, execution_state={**state, TURN: None} if TURN in state else state)
    known = read_transcript(load(target.framework), at_rest).messages
    begun = await load_checkpoint(plain, first)
    at_first = read_transcript(load(Framework.of(begun.framework)), begun).messages
    flat = _flatten(messages)
    if flat[: len(_flatten(at_first))] != _flatten(at_first) or (is_cut_off and lost & _REGROUPED):
        return named
    since = list(_regroup(flat[len(_flatten(at_first)) :]))
    turns = [
        group_message.message
        for group_message in group_messages([message for message in at_first if message.role != "system"])
    ]
    open_ids = find_open_ids(known)
    if open_ids is None or (is_cut_off and open_ids):
        return named
    if is_cut_off:  # what the turn said is in the journal only, and is no part of the state
        since = [*turns[_count_turns(known, target) :], *since]
    lead: list[TranscriptMessage] = []
    if open_ids:
        found = _find_calls(turns, open_ids.keys())
        if found is None:
            return named
        lead, results = [found[0]], found[1]
        since = [results, *since]
    spoken = [message for message in known if message.role != "system" and message.parts]
    return NativeState(
        ids.to_text(before.id),
        at_rest.execution_state,
        since,
        NativeContinuation(
            lead=lead, open_ids=open_ids, names=find_own_names(known), follows=spoken[-1].role if spoken else None
        ),
    )


def _kinds_of(about: Mapping[str, Any]) -> set[str]:
    found = about.get("kinds")
    return {item for item in found if isinstance(item, str)} if isinstance(found, list | tuple) else set()


def _flatten(messages: Sequence[TranscriptMessage]) -> list[tuple[str, str | None, MessagePart]]:
    """Return the parts of a conversation, with who said them."""
    return [
        (message.role, message.author, part)
        for message in messages
        if message.role != "system"
        for part in message.parts
    ]


def _regroup(parts: Sequence[tuple[str, str | None, MessagePart]]) -> Iterator[TranscriptMessage]:
    for grouped in group_messages(
        [TranscriptMessage(role=role, author=author, parts=(part,)) for role, author, part in parts]
    ):
        yield grouped.message


def _find_calls(
    turns: Sequence[TranscriptMessage], wanted: Collection[str]
) -> tuple[TranscriptMessage, TranscriptMessage] | None:
    """Return the turn with these calls, and that with their results; None if they are not there."""
    for asked, given in pairwise(turns):
        calls = {call.id for call in asked.tool_calls}
        if asked.role == "assistant" and calls.issuperset(wanted):
            answered = {part.id for part in given.tool_responses}
            return (asked, given) if given.role == "tool" and answered == calls else None
    return None


def _count_turns(messages: Sequence[TranscriptMessage], target: ConversionTarget) -> int:
    """Return how many turns of a converted conversation these messages have become."""
    unique, _ = unique_ids(messages)
    named, _ = shorten_names(unique)
    return len(fit_transcript(Transcript(messages=tuple(named)), target).transcript)
