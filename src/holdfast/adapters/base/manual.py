"""What the adapters' `extract` and `reconstruct` share: a framework's state as a checkpoint, and back.

An adapter extracts the keys that its `resumable` saves, too. So one `to_transcript` reads both, and
`resumable(..., session_id=...)` continues a session that was saved by hand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from holdfast.adapters.base.session import TURN
from holdfast.adapters.base.unreadable import refuse_unreadable
from holdfast.errors import UsageError
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.checkpoint_builder import CheckpointBuilder
from holdfast.model.framework import Framework


def build_checkpoint(
    framework: Framework,
    state: Mapping[str, Any],
    *,
    agent_id: str,
    session_id: str,
    context: Any = None,
    step_name: str | None = None,
) -> Checkpoint:
    """Return a checkpoint for `client.save_checkpoint`. `state` is plain data, without credentials.

    Its parent is the session's head at the time of the save, its step the parent's plus one.
    """
    for name, value in (("agent_id", agent_id), ("session_id", session_id)):
        if not isinstance(value, str) or not value:
            raise UsageError(f"{name} is {value!r:.60}: it must be a text that is not empty")
    builder = CheckpointBuilder(agent_id, framework).session(session_id)
    builder = builder.execution_state({**state, TURN: None}).context({} if context is None else context)
    if step_name is not None:
        builder = builder._set(step_name=step_name)
    return builder.build()


@contextmanager
def open_state(checkpoint: Checkpoint, framework: Framework, *keys: str) -> Iterator[dict[str, Any]]:
    """Open a checkpoint's state for a framework; raise `CorruptError` where it can't read it."""
    state = read_state(checkpoint, framework, *keys)
    with refuse_unreadable(f"checkpoint {checkpoint.checkpoint_id}"):
        yield state


def read_state(checkpoint: Checkpoint, framework: Framework, *keys: str) -> dict[str, Any]:
    """Return the state that `extract` or `resumable` has saved; raise `UsageError` for any other.

    `keys` are those that it must have. A turn that was cut off is refused: its calls are in the
    journal of its run, which only `resumable` reads.
    """
    if not isinstance(checkpoint, Checkpoint):
        raise UsageError(
            f"reconstruct() takes a Checkpoint, not a {type(checkpoint).__name__}: `client.restore(id)` returns one"
        )
    where = f"checkpoint {checkpoint.checkpoint_id} of session {checkpoint.session_id!r:.60}"
    if checkpoint.framework != framework:
        raise UsageError(
            f"{where} was saved by {checkpoint.framework}, not by {framework}: use that framework's adapter"
        )
    state = checkpoint.execution_state
    if not isinstance(state, Mapping) or not state.keys() >= set(keys):
        raise UsageError(
            f"{where} was saved neither by extract() nor by resumable(): its state lacks {', '.join(map(repr, keys))}"
        )
    if state.get(TURN) is not None:
        raise UsageError(
            f"{where} is in the middle of a turn: resumable(…, session_id={checkpoint.session_id!r:.60}) continues it. "
            "To reconstruct what was there before it, restore the checkpoint that the turn began with"
        )
    return {name: value for name, value in state.items() if name != TURN}
