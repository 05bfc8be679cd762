"""`extract` and `reconstruct`: a session of ADK as a checkpoint, and back."""

from __future__ import annotations

from typing import Any

from google.adk.sessions.base_session_service import BaseSessionService
from google.adk.sessions.session import Session

from holdfast.adapters.base.manual import build_checkpoint, read_state
from holdfast.adapters.google_adk.event import dump_event, load_event, plain_state
from holdfast.errors import UsageError
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.framework import Framework

TEMPORARY = "temp:"


def extract(native: Session, *, agent_id: str, session_id: str, context: Any = None) -> Checkpoint:
    """Return a session of ADK as a checkpoint, without its temporary state.

    `client.save_checkpoint` saves it; `resumable(agent, session_id=...)` continues it.
    """
    if not isinstance(native, Session):
        raise UsageError(f"extract() takes a Session of ADK, not a {type(native).__name__}")
    state = {
        "messages": [dump_event(event) for event in native.events if not event.partial],
        "state": plain_state({name: value for name, value in native.state.items() if not name.startswith(TEMPORARY)}),
        "user": native.user_id,
    }
    author = native.events[-1].author if native.events else None
    return build_checkpoint(
        Framework.GOOGLE_ADK, state, agent_id=agent_id, session_id=session_id, context=context, step_name=author or None
    )


async def reconstruct(
    checkpoint: Checkpoint, target: BaseSessionService, *, app_name: str | None = None, session_id: str | None = None
) -> Session:
    """Create the session in a session service of ADK, and return it.

    Without `app_name` and `session_id` they are the checkpoint's agent and session.
    """
    if not isinstance(target, BaseSessionService):
        raise UsageError(f"reconstruct() takes a session service of ADK, not a {type(target).__name__}")
    state = read_state(checkpoint, Framework.GOOGLE_ADK, "messages", "user")
    session = await target.create_session(
        app_name=app_name or checkpoint.agent_id,
        user_id=state["user"],
        state=dict(state.get("state", {})),
        session_id=session_id or checkpoint.session_id,
    )
    for message in state["messages"]:
        await target.append_event(session, load_event(message))
    return session
