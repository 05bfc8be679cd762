"""REF: how a person names a checkpoint (see `holdfast.model.refs`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.model.checkpoint import Checkpoint
    from holdfast.sync_client import SyncClient


def restore_ref(client: SyncClient, ref: str) -> Checkpoint:
    """The checkpoint with its state. Raises what says why there is none."""
    return client.restore(id_of_ref(client, ref))


def id_of_ref(client: SyncClient, ref: str) -> str:
    """The id of the checkpoint that is meant. Given by its id, it may have expired."""
    return client.resolve(ref)
