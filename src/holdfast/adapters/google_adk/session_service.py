"""`HoldfastSessionService`: ADK's sessions in a store of holdfast.

A session's events are one long list, each stored once. State of the user and of the app, which
several sessions share, has a session of its own.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.events.event import Event
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig, ListSessionsResponse
from google.adk.sessions.session import Session
from google.adk.sessions.state import State

from holdfast.adapters.base.message_log import MESSAGES, MessageLog
from holdfast.adapters.base.store_access import SeamStore
from holdfast.adapters.google_adk.event import dump_event, load_event, plain_state
from holdfast.errors import ConflictError
from holdfast.model import ids
from holdfast.model.framework import Framework

PREFIX = "adk"
_SHARED = {"app": State.APP_PREFIX, "user": State.USER_PREFIX}


class HoldfastSessionService(BaseSessionService):
    """Sessions for `Runner(session_service=HoldfastSessionService())`.

    `store` is a `Client`, a URL, or None for `.holdfast/store.db`. A session is the holdfast session
    `adk/<app>/<user>/session/<id>`. `close` closes a store that was opened here.
    """

    def __init__(self, store: Any = None) -> None:
        self._store = SeamStore(store)

    async def create_session(
        self, *, app_name: str, user_id: str, state: dict[str, Any] | None = None, session_id: str | None = None
    ) -> Session:
        session_id = (session_id or "").strip() or str(uuid.uuid4())
        name = _name_of(app_name, user_id, session_id)
        if await self._store.client.session(name) is not None:
            raise AlreadyExistsError(f"Session with id {session_id} already exists.")
        shared, own = _divide(state or {})
        await self._store.client.save(
            app_name,
            Framework.GOOGLE_ADK,
            _state_of(own, user_id) | {MESSAGES: []},
            session_id=name,
            step_name="create_session",
        )
        await self._save_shared(app_name, user_id, shared)
        created = await self.get_session(app_name=app_name, user_id=user_id, session_id=session_id)
        assert created is not None
        return created

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        head = await self._store.client.latest(_name_of(app_name, user_id, session_id.strip()))
        if head is None:
            return None
        dumped = head.execution_state.get(MESSAGES, [])
        if config is not None and config.num_recent_events is not None:
            dumped = dumped[-config.num_recent_events :] if config.num_recent_events else []
        if config is not None and config.after_timestamp is not None:
            dumped = [item for item in dumped if item["timestamp"] >= config.after_timestamp]
        return Session(
            id=session_id.strip(),
            app_name=app_name,
            user_id=user_id,
            state={**head.execution_state.get("state", {}), **await self._load_shared(app_name, user_id)},
            events=[load_event(item) for item in dumped],
            last_update_time=head.created_at.timestamp(),
        )

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        prefix = _name_of(app_name, user_id, "") if user_id is not None else f"{PREFIX}/{quote(app_name, safe='')}/"
        found = []
        for name in await self._store.client.session_ids(prefix):
            _, _, user, kind, *rest = name.split("/")
            session = None
            if kind == "session":
                session = await self.get_session(
                    app_name=app_name,
                    user_id=unquote(user),
                    session_id=unquote(rest[0]),
                    config=GetSessionConfig(num_recent_events=0),
                )
            if session is not None:
                found.append(session)
        found.sort(key=lambda item: (item.last_update_time, item.user_id, item.id))
        return ListSessionsResponse(sessions=found)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Expire all checkpoints of the session; `holdfast gc` removes what they alone refer to."""
        client = self._store.client
        for checkpoint in await client.timeline(_name_of(app_name, user_id, session_id.strip()), limit=None):
            await client.expire(checkpoint.checkpoint_id)

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        return await self._load_one(_shared_name(app_name, user_id, "user"))

    async def append_event(self, session: Session, event: Event) -> Event:
        """Append an event to the session and to the store. It is durable then."""
        if event.partial:
            return event
        event = await super().append_event(session, event)
        _, own = _divide(session.state)
        shared, _ = _divide(event.actions.state_delta if event.actions else {})
        log = MessageLog(
            self._store,
            Framework.GOOGLE_ADK,
            _name_of(session.app_name, session.user_id, session.id),
            agent_id=session.app_name,
        )
        await log.append([dump_event(event)], step_name=event.author or "event", about=_state_of(own, session.user_id))
        await self._save_shared(session.app_name, session.user_id, shared)
        session.last_update_time = max(event.timestamp, time.time())
        return event

    async def close(self) -> None:
        await self._store.aclose()

    # -- state that sessions share -------------------------------------------------------------------------------------

    async def _load_shared(self, app_name: str, user_id: str) -> dict[str, Any]:
        return {
            f"{prefix}{name}": value
            for kind, prefix in _SHARED.items()
            for name, value in (await self._load_one(_shared_name(app_name, user_id, kind))).items()
        }

    async def _load_one(self, name: str) -> dict[str, Any]:
        head = await self._store.client.latest(name)
        return {} if head is None else dict(head.execution_state.get("state", {}))

    async def _save_shared(self, app_name: str, user_id: str, changed: Mapping[str, Mapping[str, Any]]) -> None:
        client = self._store.client
        for kind, values in changed.items():
            name = _shared_name(app_name, user_id, kind)
            options = {
                "agent_id": app_name,
                "framework": Framework.GOOGLE_ADK,
                "session_id": name,
                "step_name": "state",
            }
            while values:
                head = await client.latest(name)
                if head is None:
                    # All that begin it at once save the same checkpoint: later ones expect it as the head.
                    await client.save(**options, execution_state={"state": {}}, checkpoint_id=_first_id(name))
                    continue
                state = {"state": {**head.execution_state["state"], **values}}
                try:
                    await client.save(**options, execution_state=state, expect_head=head.checkpoint_id)
                except ConflictError:
                    continue
                break


def _state_of(own: Mapping[str, Any], user_id: str) -> dict[str, Any]:
    return {"state": dict(own), "user": user_id}


def _divide(state: Mapping[str, Any]) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Return the shared state by kind, and the session's own, without what is temporary."""
    shared: dict[str, dict[str, Any]] = {kind: {} for kind in _SHARED}
    own = {}
    for name, value in plain_state(state).items():
        kind = next((kind for kind, prefix in _SHARED.items() if name.startswith(prefix)), None)
        if kind is not None:
            shared[kind][name.removeprefix(_SHARED[kind])] = value
        elif not name.startswith(State.TEMP_PREFIX):
            own[name] = value
    return shared, own


def _name_of(app_name: str, user_id: str, session_id: str) -> str:
    return "/".join([PREFIX, quote(app_name, safe=""), quote(user_id, safe=""), "session", quote(session_id, safe="")])


def _shared_name(app_name: str, user_id: str, kind: str) -> str:
    user = quote(user_id, safe="") if kind == "user" else ""
    return "/".join([PREFIX, quote(app_name, safe=""), user, "state"])


def _first_id(name: str) -> str:
    return ids.to_text(ids.make(0, 0, hashlib.sha256(name.encode()).digest()[:8]))
