"""REF: how a person names a checkpoint. By its id, by the last eight or more digits of it, by a tag, or by a session, which
stands for the checkpoint it stands at."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from holdfast.cli.printable import printable
from holdfast.errors import CheckpointExpiredError, CheckpointNotFoundError, UsageError
from holdfast.model import ids
from holdfast.model.ids import SHORT_ID_LENGTH

if TYPE_CHECKING:
    from holdfast.model.checkpoint import Checkpoint
    from holdfast.sync_client import SyncClient


def restore_ref(client: SyncClient, ref: str) -> Checkpoint:
    """The checkpoint with its state. Raises what says why there is none."""
    return client.restore(id_of_ref(client, ref))


def id_of_ref(client: SyncClient, ref: str) -> str:
    """The id of the checkpoint that is meant. Given by its id, it may have expired."""
    full_id = _full_id(ref)
    if full_id is not None:
        try:
            client.get(full_id)
        except CheckpointExpiredError:
            return full_id
        except CheckpointNotFoundError:
            # Sessions that were given no name have one of this form, too.
            return _named(client, ref)
        return full_id
    if ids.is_like_id(ref):
        found = client.find(ref)
        if len(found) > 1:
            raise UsageError(
                f"{ref} is the end of more than one id: {', '.join(found)}. Give more digits, or the whole id"
            )
        if found:
            return found[0]
    return _named(client, ref)


def _named(client: SyncClient, ref: str) -> str:
    """What a tag or a session of that name stands at."""
    tag, session = client.tagged(ref), client.session(ref)
    if tag is not None and session is not None and session.head.checkpoint_id != tag.checkpoint_id:
        raise UsageError(
            f"{printable(ref, 60)!r} is a tag, at {tag.checkpoint_id}, and a session, which stands at "
            f"{session.head.checkpoint_id}: give the id that is meant"
        )
    if tag is not None:
        return tag.checkpoint_id
    if session is not None:
        return session.head.checkpoint_id
    raise CheckpointNotFoundError(
        f"there is no checkpoint, tag or session {printable(ref, 60)!r} here. A checkpoint is named by its id or by "
        f"the last {SHORT_ID_LENGTH} or more digits of it. `holdfast sessions` lists the sessions, `holdfast "
        "timeline SESSION` its checkpoints, `holdfast tag` the tags"
    )


def _full_id(ref: str) -> str | None:
    try:
        return str(uuid.UUID(ref))
    except ValueError:
        return None
