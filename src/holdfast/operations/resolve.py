"""resolve: the checkpoint of a reference (`model/ref_syntax.py` lists the kinds of references)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence

from holdfast.errors import CheckpointNotFoundError, CorruptError, UsageError
from holdfast.format.state import record
from holdfast.model import ids, ref_syntax
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.ids import SHORT_ID_LENGTH
from holdfast.operations import lookup, tombstones
from holdfast.operations import tag as tags
from holdfast.operations import timeline as listing
from holdfast.operations.context import StoreContext


async def resolve(ctx: StoreContext, ref: str) -> bytes:
    """Return the id of the checkpoint. One given by its id, or the end of it, may have expired."""
    found = await _resolve_whole(ctx, ref)
    if found is not None:
        return found
    place = ref_syntax.parse(ref)
    if place is None:
        raise _unknown(ref)
    if place.base:
        base = await _resolve_whole(ctx, place.base)
    else:
        sessions = await listing.sessions(ctx, limit=1)
        base = ids.from_text(sessions[0].head.checkpoint_id) if sessions else None
    if base is None:
        raise _unknown(place.base or ref)
    return await _choose(ctx, ref, base, ref_syntax.matcher(place))


async def _choose(ctx: StoreContext, ref: str, base: bytes, is_meant: Callable[[int, Checkpoint], bool]) -> bytes:
    """Return the first checkpoint of a line that is meant, one after the other: a line may be long."""
    read = 0
    try:
        stored = await lookup.find_nearest_live(ctx, base)
        while stored is not None:
            if is_meant(read, record.checkpoint(ctx.codec, stored)):
                return stored.id
            read += 1
            stored = await lookup.find_nearest_live(ctx, stored.parent, stored.tree)
    except CorruptError as damage:
        raise CorruptError(
            f"{ref!r:.80} can't be looked for: the line of {ids.to_text(base)} can be followed for {read} "
            "checkpoints, and then "
            f"there is damage: {damage}. Name the checkpoint by its id: `holdfast timeline` lists those that are intact"
        ) from damage
    raise CheckpointNotFoundError(
        f"{ref!r:.80} matches no checkpoint: the history of {ids.to_text(base)} has {read} that can be "
        "restored, none of them at that position. `holdfast timeline` lists steps, names and dates"
    )


async def load_ancestors(ctx: StoreContext, id_: bytes) -> list[Checkpoint]:
    """Return the checkpoint and its ancestors, newest first, without states and expired ones."""
    branch: list[Checkpoint] = []
    stored = await lookup.find_nearest_live(ctx, id_)
    while stored is not None:
        branch.append(record.checkpoint(ctx.codec, stored))
        stored = await lookup.find_nearest_live(ctx, stored.parent, stored.tree)
    return branch


async def load_branch(ctx: StoreContext, session_id: str) -> list[Checkpoint]:
    """Return the head of the session and its ancestors, newest first, without their states."""
    session = await listing.session(ctx, session_id)
    if session is None:
        raise CheckpointNotFoundError(
            f"there is no session {session_id!r:.200} here. `sessions()` lists those that are there"
        )
    return await load_ancestors(ctx, ids.from_text(session.head.checkpoint_id))


async def find_ids(ctx: StoreContext, ending: str, limit: int = 2) -> Sequence[bytes]:
    """Return the ids that end in these hex digits; expired ones only if there are no others."""
    digits = ending.replace("-", "").lower()
    return await ctx.backend.find_ids(digits, limit) or await tombstones.find_ids(ctx, digits, limit)


async def _resolve_whole(ctx: StoreContext, ref: str) -> bytes | None:
    """Return the checkpoint that the whole text names: an id, the end of one, a tag or a session."""
    full_id = _full_id(ref)
    if full_id is not None and await lookup.find_record(ctx, full_id) is not None:
        return full_id
    if full_id is None and ids.is_like_id(ref):
        found = await find_ids(ctx, ref)
        if len(found) > 1:
            listed = ", ".join(map(ids.to_text, found))
            raise UsageError(f"{ref} is the end of more than one id: {listed}. Give more digits, or the whole id")
        if found:
            return found[0]
    # Sessions without a given name have a name in the form of an id, too.
    tag, session = await tags.get_tag(ctx, ref), await listing.session(ctx, ref)
    if tag is not None and session is not None and session.head.checkpoint_id != tag.checkpoint_id:
        raise UsageError(
            f"{ref!r:.60} is a tag, at {tag.checkpoint_id}, and a session, which stands at "
            f"{session.head.checkpoint_id}: give the id that is meant"
        )
    if tag is not None:
        return ids.from_text(tag.checkpoint_id)
    return ids.from_text(session.head.checkpoint_id) if session is not None else None


def _full_id(ref: str) -> bytes | None:
    try:
        return uuid.UUID(ref).bytes
    except ValueError:
        return None


def _unknown(ref: str) -> CheckpointNotFoundError:
    return CheckpointNotFoundError(
        f"there is no checkpoint, tag or session {ref!r:.200} here. A checkpoint is named by its id or by the last "
        f"{SHORT_ID_LENGTH} or more digits of it, by a tag, or by its place in a session (`SESSION@~3`). `holdfast "
        "sessions` lists the sessions, `holdfast timeline SESSION` its checkpoints, `holdfast tag` the tags"
    )
