"""Effects on the command line: how one is named, and shown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from holdfast.cli.json_output import moment, shown
from holdfast.cli.printable import printable
from holdfast.errors import CheckpointNotFoundError, UsageError
from holdfast.model import ids

if TYPE_CHECKING:
    from holdfast.model.effects import Effect
    from holdfast.sync_client import SyncClient


def effect_of_ref(client: SyncClient, ref: str) -> Effect:
    """The effect that is meant: by its id, or by the last eight or more digits of it."""
    digits = ref.replace("-", "").lower()
    found = [one for one in client.effects() if ids.is_like_id(ref) and one.effect_id.replace("-", "").endswith(digits)]
    if len(found) > 1:
        every = ", ".join(one.effect_id for one in found)
        raise UsageError(f"{ref} is the end of more than one id: {every}. Give more digits, or the whole id")
    if not found:
        raise CheckpointNotFoundError(
            f"there is no effect {printable(ref, 60)!r} here. One is named by its id or by the last {ids.SHORT_ID_LENGTH} or "
            "more digits of it; `holdfast effects` lists them"
        )
    return found[0]


def call_text(effect: Effect) -> str:
    told = ", ".join(f"{name}={json.dumps(shown(value))}" for name, value in effect.arguments.items())
    return f"{effect.tool}({told})"


def effect_fields(effect: Effect) -> dict[str, Any]:
    return {
        "effect_id": effect.effect_id,
        "short_id": effect.short_id,
        "session_id": effect.session_id,
        "agent_id": effect.agent_id,
        "tree_id": effect.tree_id,
        "tool": effect.tool,
        "kind": str(effect.kind),
        "state": str(effect.state),
        "in_doubt": effect.is_in_doubt,
        "arguments": shown(dict(effect.arguments)),
        "identity": shown(dict(effect.identity)),
        "provider_key": effect.provider_key,
        "attempts": effect.attempts,
        "generation": effect.generation,
        "anchor_id": effect.anchor_id,
        "checkpoint_id": effect.checkpoint_id,
        "result": shown(effect.result),
        "error": effect.error,
        "approval_id": effect.approval_id,
        "target_id": effect.target_id,
        "undoable": effect.undoable,
        "acknowledged": effect.acknowledged,
        "history": [
            {"what": event.what, "at": moment(event.at), "by": event.by, "note": event.note} for event in effect.history
        ],
    }
