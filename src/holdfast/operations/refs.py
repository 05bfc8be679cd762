"""resolve: the checkpoint that a reference means (`model/refs.py` says what references there are)."""

from __future__ import annotations

import uuid

from holdfast.errors import CheckpointNotFoundError, CorruptError, UsageError
from holdfast.model import ids, refs
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.ids import SHORT_ID_LENGTH
from holdfast.objects import record
from holdfast.operations import graves, reading, tags
from holdfast.operations import timeline as listing
from holdfast.operations.services import Services


async def resolve(services: Services, ref: str) -> bytes:
    """The id of the checkpoint that is meant. Given by its id, or the end of it, it may have expired."""
    found = await _whole(services, ref)
    if found is not None:
        return found
    place = refs.parse(ref)
    if place is None:
        raise _unknown(ref)
    if place.base:
        base = await _whole(services, place.base)
    else:
        sessions = await listing.sessions(services, limit=1)
        base = ids.from_text(sessions[0].head.checkpoint_id) if sessions else None
    if base is None:
        raise _unknown(place.base or ref)
    line: list[Checkpoint] = []
    damage: CorruptError | None = None
    try:
        await _follow(services, base, line)
    except CorruptError as error:
        damage = error
    chosen = refs.chosen(place, line)
    if chosen is None and damage is not None:
        raise CorruptError(
            f"{ref!r:.80} can't be looked for: the line of {ids.to_text(base)} can be followed for {len(line)} checkpoints, and then "
            f"there is damage: {damage}. Name the checkpoint by its id: `holdfast timeline` lists those that are intact"
        ) from damage
    if chosen is None:
        raise CheckpointNotFoundError(
            f"{ref!r:.80} means no checkpoint: the line of {ids.to_text(base)} has {len(line)} that can be restored, and "
            "none is there. `holdfast timeline` lists steps, names and dates"
        )
    return ids.from_text(chosen.checkpoint_id)


async def line_of(services: Services, id_: bytes) -> list[Checkpoint]:
    """The checkpoint and its ancestors, newest first, without their states; those that have expired are left out."""
    line: list[Checkpoint] = []
    await _follow(services, id_, line)
    return line


async def _follow(services: Services, id_: bytes, line: list[Checkpoint]) -> None:
    """Adds the checkpoint and its ancestors to the line, one by one: those before what is damaged are there when that is told."""
    stored = await reading.nearest_live(services, id_)
    while stored is not None:
        line.append(record.checkpoint(services.codec, stored))
        stored = await reading.nearest_live(services, stored.parent, stored.tree)


async def _whole(services: Services, ref: str) -> bytes | None:
    """What the whole text names: an id, the end of one, a tag or a session."""
    full_id = _full_id(ref)
    if full_id is not None and await reading.find_record(services, full_id) is not None:
        return full_id
    if full_id is None and ids.is_like_id(ref):
        digits = ref.replace("-", "").lower()
        found = await services.backend.find_ids(digits, 2) or await graves.find_ids(services, digits, 2)
        if len(found) > 1:
            listed = ", ".join(map(ids.to_text, found))
            raise UsageError(f"{ref} is the end of more than one id: {listed}. Give more digits, or the whole id")
        if found:
            return found[0]
    # Sessions that were given no name have one of an id's form, too.
    tag, session = await tags.tagged(services, ref), await listing.session(services, ref)
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
        f"there is no checkpoint, tag or session {ref!r:.60} here. A checkpoint is named by its id or by the last "
        f"{SHORT_ID_LENGTH} or more digits of it, by a tag, or by its place in a session (`SESSION@~3`). `holdfast "
        "sessions` lists the sessions, `holdfast timeline SESSION` its checkpoints, `holdfast tag` the tags"
    )
