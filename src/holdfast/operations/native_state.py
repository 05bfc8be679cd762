"""The way back: an earlier state of the target's own framework, and what was said since.

A session that came from framework A to B, and goes back to A, continues A's own state: its channels,
its position in a team, what a conversation does not tell. Only the messages since are converted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from holdfast.format.state.record import StoredRecord
from holdfast.model import ids
from holdfast.model.conversation import ToolResponsePart, Transcript, TranscriptMessage
from holdfast.model.conversion_target import ConversionTarget
from holdfast.model.framework import Framework
from holdfast.model.transcript_fit import fit_transcript
from holdfast.model.transcript_moves import close_calls, shorten_names, unique_ids
from holdfast.model.transcript_order import group_messages
from holdfast.operations import lookup
from holdfast.operations import restore as restoring
from holdfast.operations.context import StoreContext
from holdfast.operations.move_source import LoadConverter, MoveSource, plain_context, read_transcript

CONVERTED = "converted"
"""The key of a first checkpoint's metadata that says where the session came from."""
TURN = "turn"  # of the state of adapters: the turn that was not finished


class NativeState(NamedTuple):
    """An earlier state of the target, the messages since, and how many of them only lead up to these.

    `lead` counts messages at the beginning of `messages` that the state has already: the calls whose
    results come next.
    """

    checkpoint_id: str
    state: Mapping[str, Any]
    messages: Sequence[TranscriptMessage]
    lead: int


async def find_origin(ctx: StoreContext, record: StoredRecord) -> tuple[StoredRecord, Mapping[str, Any]] | None:
    """Return the first checkpoint of the conversion that led here, and what it says about itself."""
    at: StoredRecord | None = record
    while at is not None:
        about = ctx.codec.decode(at.header["meta"]) if "meta" in at.header else {}
        found = about.get(CONVERTED) if isinstance(about, Mapping) else None
        if isinstance(found, Mapping):
            return at, found
        at = await lookup.nearest_live(ctx, at.parent, at.tree) if at.parent is not None else None
    return None


async def find_native(
    ctx: StoreContext,
    source: MoveSource,
    messages: Sequence[TranscriptMessage],
    target: ConversionTarget,
    load: LoadConverter,
) -> NativeState | str | None:
    """Return the target's earlier state, if the session came from there.

    A text is the id of such a state that can't be continued: the conversation since was not only
    appended to, or the state has expired. None: there is none. `messages` are the source's, with
    unique ids and every call answered.
    """
    plain = plain_context(ctx)
    origin = await find_origin(plain, source.record)
    if origin is None or origin[1].get("from") not in (target.name, str(target.framework)):
        return None
    first, about = origin
    named = str(about.get("source"))
    before = None if first.parent is None else await lookup.find_record(plain, first.parent, first.tree)
    if before is None or await lookup.is_expired(plain, before):
        return named
    native = await restoring.loaded(plain, before)
    state = native.execution_state
    if not isinstance(state, Mapping):
        return named
    at_rest = replace(native, execution_state={**state, TURN: None} if TURN in state else state)
    home = load(target.framework)
    begun = await restoring.loaded(plain, first)
    moved_to = load(Framework.of(begun.framework))
    kept = _count_turns(read_transcript(home, at_rest).messages, target)
    at_first, now = (
        list(group_messages([one for one in said if one.role != "system"]))
        for said in (read_transcript(moved_to, begun).messages, messages)
    )
    if len(now) < kept or [one.message for one in now[:kept]] != [one.message for one in at_first[:kept]]:
        return named
    since = [one.message for one in now[kept:]]
    lead = 0
    if since and since[0].role == "tool":
        answered = {part.id for one in read_transcript(home, at_rest) for part in one.tool_responses}
        since[0] = _without(since[0], answered)
        since, lead = [now[kept - 1].message, *since] if kept else since, 1 if kept else 0
    return NativeState(ids.to_text(before.id), at_rest.execution_state, since, lead)


def _count_turns(messages: Sequence[TranscriptMessage], target: ConversionTarget) -> int:
    """Return how many turns of a converted conversation these messages have become.

    The last turn counts without results that were put there when it was converted.
    """
    unique, _ = unique_ids(messages)
    open_at_end = [call.id for one in unique for call in one.tool_calls]
    answered = {part.id for one in unique for part in one.tool_responses}
    is_open = any(id_ not in answered for id_ in open_at_end)
    closed, _ = close_calls(unique, "answer", lambda _: None)
    named, _ = shorten_names(closed)
    fitted = fit_transcript(Transcript(messages=tuple(named)), target).transcript
    return len(fitted) - (1 if is_open else 0)


def _without(message: TranscriptMessage, answered: set[str]) -> TranscriptMessage:
    """Return results without those that the earlier state has."""
    kept = [one for one in message.parts if not isinstance(one, ToolResponsePart) or one.id not in answered]
    return replace(message, parts=tuple(kept))
