"""`HoldfastHistoryProvider`: the framework's own history provider over a store of holdfast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent_framework import HistoryProvider, Message

from holdfast.adapters.base.message_log import MessageLog
from holdfast.adapters.base.store_access import SeamStore
from holdfast.errors import UsageError
from holdfast.model.framework import Framework


class HoldfastHistoryProvider(HistoryProvider):
    """A history for `Agent(..., context_providers=[HoldfastHistoryProvider()])`.

    A session of the framework is a session of the store. The framework saves the messages of a run
    when it is over; `resumable` saves each call. The other options are those of `HistoryProvider`.
    """

    def __init__(
        self, source_id: str = "holdfast", *, store: Any = None, agent_id: str = "agent", **options: Any
    ) -> None:
        super().__init__(source_id, **options)
        self._store = SeamStore(store)
        self._agent_id = agent_id

    async def get_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[Message]:
        return [Message.from_dict(dict(message)) for message in await self._log(session_id).load()]

    async def save_messages(
        self, session_id: str | None, messages: Sequence[Message], *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        await self._log(session_id).append([message.to_dict() for message in messages], step_name="save_messages")

    async def close(self) -> None:
        """Close a store that was opened here."""
        await self._store.aclose()

    def _log(self, session_id: str | None) -> MessageLog:
        if not session_id:
            raise UsageError("the run has no session: pass session=agent.create_session(session_id=...)")
        return MessageLog(self._store, Framework.AGENT_FRAMEWORK, session_id, agent_id=self._agent_id)
