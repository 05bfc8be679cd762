"""`extract` and `reconstruct`: a transcript of the CLI as a checkpoint, and back into a session store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from claude_agent_sdk import SessionStore, project_key_for_directory

from holdfast.adapters.base.manual import build_checkpoint, read_state
from holdfast.adapters.base.message_log import MESSAGES
from holdfast.adapters.claude_agent.entries import find_session_id, name_step
from holdfast.errors import UsageError
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.framework import Framework


def extract(
    native: Sequence[Mapping[str, Any]] | Mapping[str, Sequence[Mapping[str, Any]]],
    *,
    agent_id: str,
    session_id: str,
    context: Any = None,
) -> Checkpoint:
    """Return a transcript as a checkpoint: `await session_store.load(key)`, or the lines of a JSONL file.

    A mapping has the transcripts of sub-agents, too, by their subpaths; the main one is `messages`.
    `client.save_checkpoint` saves it; `resumable(options, session_id=...)` continues it.
    """
    lists = native if isinstance(native, Mapping) else {MESSAGES: native}
    for name, entries in lists.items():
        is_list = isinstance(entries, Sequence) and not isinstance(entries, str | bytes)
        if not isinstance(name, str) or not is_list or not all(isinstance(item, Mapping) for item in entries):
            raise UsageError(
                "extract() takes the entries of a transcript, as SessionStore.load() returns them, not a "
                f"{type(native).__name__} of other values"
            )
    if MESSAGES not in lists:
        raise UsageError(f"the main transcript is missing: give it as {MESSAGES!r}")
    state = {name: [dict(entry) for entry in entries] for name, entries in lists.items()}
    return build_checkpoint(
        Framework.CLAUDE_AGENT,
        state,
        agent_id=agent_id,
        session_id=session_id,
        context=context,
        step_name=name_step(state[MESSAGES])[:100],
    )


async def reconstruct(checkpoint: Checkpoint, target: SessionStore, *, project_key: str | None = None) -> str:
    """Append the transcripts to a session store of the SDK; return the session's id, for `resume=`.

    Without `project_key` it is that of the working directory.
    """
    if not callable(getattr(target, "append", None)):
        raise UsageError(f"reconstruct() takes a session store of the SDK, not a {type(target).__name__}")
    state = read_state(checkpoint, Framework.CLAUDE_AGENT, MESSAGES)
    id_ = find_session_id(state[MESSAGES])
    if id_ is None:
        raise UsageError(f"checkpoint {checkpoint.checkpoint_id} has no entry with a session id of the CLI")
    key = {"project_key": project_key or project_key_for_directory(None), "session_id": id_}
    for name, entries in state.items():
        if isinstance(entries, list) and entries:
            await target.append({**key, **({} if name == MESSAGES else {"subpath": name})}, entries)
    return id_
