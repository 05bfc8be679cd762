"""`HoldfastPersistence`: the states of flows with `@persist`, as checkpoints."""

from __future__ import annotations

import threading
from typing import Any

from crewai.flow.async_feedback import PendingFeedbackContext
from crewai.flow.persistence import FlowPersistence
from pydantic import BaseModel, PrivateAttr

from holdfast.adapters.base.session import TURN
from holdfast.adapters.base.store_access import SeamStore
from holdfast.adapters.crewai.credentials import strip_credentials
from holdfast.model.framework import Framework


class HoldfastPersistence(FlowPersistence):
    """A store for `@persist(HoldfastPersistence())`. A flow's id is its session, a method a step.

    `store` is a `SyncClient`, a URL, or None for `.holdfast/store.db`. What is opened here stays open
    until `close()`. Like every `FlowPersistence`, it keeps states: CrewAI runs the methods again.
    """

    persistence_type: str = "HoldfastPersistence"
    agent_id: str = "flow"
    _store: SeamStore = PrivateAttr()
    _pending: dict[str, Any] = PrivateAttr(default_factory=dict)  # by flow: the question that it waits for
    _lock: Any = PrivateAttr(default_factory=threading.Lock)

    def __init__(self, store: Any = None, *, agent_id: str = "flow", **fields: Any) -> None:
        super().__init__(agent_id=agent_id, **fields)
        self._store = SeamStore(store, is_async=False)

    def init_db(self) -> None:
        """Do nothing: the store is created by its first save."""

    def save_state(self, flow_uuid: str, method_name: str, state_data: dict[str, Any] | BaseModel) -> None:
        with self._lock:
            self._save(flow_uuid, method_name, state_data, self._find_pending(flow_uuid))

    def load_state(self, flow_uuid: str) -> dict[str, Any] | None:
        stored = self._load(flow_uuid)
        return None if stored is None else dict(stored["flow"])

    def save_pending_feedback(
        self, flow_uuid: str, context: PendingFeedbackContext, state_data: dict[str, Any] | BaseModel
    ) -> None:
        with self._lock:
            self._save(flow_uuid, context.method_name, state_data, strip_credentials(context.to_dict()))

    def load_pending_feedback(self, flow_uuid: str) -> tuple[dict[str, Any], PendingFeedbackContext] | None:
        stored = self._load(flow_uuid)
        if stored is None or not stored.get("pending"):
            return None
        return dict(stored["flow"]), PendingFeedbackContext.from_dict(stored["pending"])

    def clear_pending_feedback(self, flow_uuid: str) -> None:
        with self._lock:
            stored = self._load(flow_uuid)
            if stored is not None and stored.get("pending"):
                self._save(flow_uuid, "feedback received", stored["flow"], None)

    def close(self) -> None:
        """Close the store, if it was opened here; the next use opens it again."""
        self._store.close()

    def _save(self, flow_uuid: str, method_name: str, state: Any, pending: Any) -> None:
        plain = state.model_dump() if isinstance(state, BaseModel) else dict(state)
        self._store.client.save(
            self.agent_id,
            Framework.CREWAI,
            {"flow": strip_credentials(plain), "messages": [], "pending": pending, TURN: None},
            flow_uuid,
            step_name=str(method_name),
        )
        self._pending[flow_uuid] = pending

    def _find_pending(self, flow_uuid: str) -> Any:
        if flow_uuid not in self._pending:
            self._pending[flow_uuid] = (self._load(flow_uuid) or {}).get("pending")
        return self._pending[flow_uuid]

    def _load(self, flow_uuid: str) -> dict[str, Any] | None:
        latest = self._store.client.latest(session_id=flow_uuid)
        state = None if latest is None else latest.execution_state
        return state if isinstance(state, dict) and "flow" in state else None
