"""REF: how a person names a checkpoint. By its id, by the last eight or more digits of it, or by a session, which
stands for the checkpoint it stands at."""

from __future__ import annotations

import string
import uuid
from typing import TYPE_CHECKING

from holdfast.cli.printable import printable
from holdfast.errors import CheckpointNotFoundError, UsageError
from holdfast.model.ids import SHORT_ID_LENGTH

if TYPE_CHECKING:
    from holdfast.model.checkpoint import Checkpoint
    from holdfast.sync_client import SyncClient


def restore_ref(client: SyncClient, ref: str) -> Checkpoint:
    """The checkpoint with its state. Raises what says why there is none."""
    if _is_full_id(ref):
        try:
            return client.restore(ref)
        except CheckpointNotFoundError:
            # Sessions that were given no name have one of this form, too.
            return _head(client, ref)
    if _is_short_id(ref):
        found = client.find(ref)
        if len(found) > 1:
            raise UsageError(
                f"{ref} is the end of more than one id: {', '.join(found)}. Give more digits, or the whole id"
            )
        if found:
            return client.restore(found[0])
    return _head(client, ref)


def _head(client: SyncClient, ref: str) -> Checkpoint:
    checkpoint = client.latest(session_id=ref)
    if checkpoint is None:
        raise CheckpointNotFoundError(
            f"there is no checkpoint and no session {printable(ref, 60)!r} here. A checkpoint is named by its id or by "
            f"the last {SHORT_ID_LENGTH} or more digits of it. `holdfast sessions` lists the sessions, `holdfast "
            "timeline SESSION` its checkpoints"
        )
    return checkpoint


def _is_full_id(ref: str) -> bool:
    try:
        uuid.UUID(ref)
    except ValueError:
        return False
    return True


def _is_short_id(ref: str) -> bool:
    digits = ref.replace("-", "")
    return len(digits) >= SHORT_ID_LENGTH and all(digit in string.hexdigits for digit in digits)
