"""The conversation of one session behind a framework's own interface: a long list of plain messages.

The state has the keys that `extract` and `resumable` save. So `to_transcript` reads it, and an append
stores the new messages only. With a `SyncClient`, `run_inline` steps the coroutines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from holdfast.adapters.base.session import TURN
from holdfast.adapters.base.store_access import SeamStore
from holdfast.errors import ConflictError, UsageError
from holdfast.model.framework import Framework

T = TypeVar("T")
MESSAGES = "messages"


class MessageLog:
    """A session's messages: load them, append to them, change them.

    `about` is what else the state has, such as the name of a user.
    """

    def __init__(
        self,
        store: SeamStore,
        framework: Framework,
        session_id: str,
        *,
        agent_id: str,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(session_id, str) or not session_id:
            raise UsageError(f"session_id is {session_id!r:.60}: it must be a text that is not empty")
        self.session_id = session_id
        self._store = store
        self._options = {"agent_id": agent_id, "framework": framework, "session_id": session_id}
        self._state = {**(about or {}), TURN: None}
        self._is_checked = False

    async def load(self) -> list[Any]:
        return (await self._load())[1]

    async def append(
        self, messages: Sequence[Any], *, step_name: str | None = None, about: Mapping[str, Any] | None = None
    ) -> None:
        """Append messages, also while other processes append; `about` replaces what else the state has."""
        if about is not None:
            self._state = {**about, TURN: None}
        elif not messages:
            return
        if not self._is_checked:
            await self._load()
        client = self._store.client
        appended = {f"+{MESSAGES}": list(messages)}
        await settle(
            client.save(**self._options, execution_state=dict(self._state), append=appended, step_name=step_name)
        )

    async def change(self, change: Callable[[list[Any]], T], *, step_name: str | None = None) -> T:
        """Let a function change the list in place, and save it; return what the function returns.

        If another writer was faster, the function is called again with the newer list.
        """
        client = self._store.client
        while True:
            head, messages = await self._load()
            before = list(messages)
            result = change(messages)
            if messages == before:
                return result
            if head is None:  # there is no head to expect: another writer's first messages must stay
                await self.append(messages, step_name=step_name)
                return result
            state = {**self._state, MESSAGES: messages}
            try:
                await settle(client.save(**self._options, execution_state=state, step_name=step_name, expect_head=head))
            except ConflictError:
                continue
            return result

    async def _load(self) -> tuple[str | None, list[Any]]:
        head = await settle(self._store.client.latest(self.session_id))
        self._is_checked = True
        if head is None:
            return None, []
        state = head.execution_state if isinstance(head.execution_state, Mapping) else {}
        if state.get(TURN) is not None:
            self._is_checked = False
            raise UsageError(
                f"session {self.session_id!r:.60} is in the middle of a turn of resumable(): finish it first, or use "
                "another session_id"
            )
        messages = state.get(MESSAGES, [])
        if not isinstance(messages, list):
            raise UsageError(f"session {self.session_id!r:.60} has no conversation: its {MESSAGES!r} is no list")
        return head.checkpoint_id, messages


async def settle(value: Any) -> Any:
    """Return a client's result, awaited if the client is one with `await`."""
    return await value if hasattr(value, "__await__") else value
