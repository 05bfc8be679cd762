"""`HoldfastSession`: the SDK's own `Session` over a store of holdfast.

The SDK saves the items of a turn when the turn is over. `resumable` saves each call.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from agents.memory.session_settings import SessionSettings, resolve_session_limit

from holdfast.adapters.base.message_log import MessageLog
from holdfast.adapters.base.store_access import SeamStore
from holdfast.adapters.openai_agents.response import dump_item
from holdfast.model.framework import Framework


class HoldfastSession:
    """A conversation for `Runner.run(agent, input, session=HoldfastSession("order-42"))`.

    `store` is a `Client`, a URL, or None for `.holdfast/store.db`. A store that was opened here is
    closed by `close`, or by `async with`.
    """

    def __init__(
        self,
        session_id: str,
        *,
        store: Any = None,
        agent_id: str = "agent",
        session_settings: SessionSettings | None = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings = session_settings or SessionSettings()
        self._store = SeamStore(store)
        self._log = MessageLog(self._store, Framework.OPENAI_AGENTS, session_id, agent_id=agent_id)

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """Return the items of the conversation, or the last `limit` ones."""
        limit = resolve_session_limit(limit, self.session_settings)
        items = await self._log.load()
        return items if limit is None else items[-limit:] if limit > 0 else []

    async def add_items(self, items: list[Any]) -> None:
        await self._log.append([dump_item(item) for item in items], step_name="add_items")

    async def pop_item(self) -> Any:
        """Remove the last item and return it; None if there is none."""
        return await self._log.change(lambda items: items.pop() if items else None, step_name="pop_item")

    async def clear_session(self) -> None:
        """Remove all items. Earlier checkpoints still have them: `holdfast rollback` brings them back."""
        await self._log.change(list.clear, step_name="clear_session")

    async def close(self) -> None:
        await self._store.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
