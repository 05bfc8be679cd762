"""The CLI's transcript in the state of a resumable session, as the SDK's `SessionStore`.

The CLI writes an entry to its own file, and mirrors it up to 100 ms later. So `wait_for_call` lets a
tool wait until its call is stored: then a call that was under way at a crash is always known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any

from claude_agent_sdk import SessionKey, SessionStore, SessionStoreEntry

from holdfast.adapters.base.message_log import MESSAGES
from holdfast.adapters.base.session import ResumableSession, TurnEnd
from holdfast.adapters.base.turn import FrameworkTurn, TurnEndedError
from holdfast.adapters.claude_agent.entries import count_parallel_calls, find_calls, name_step
from holdfast.adapters.claude_agent.session_store import ids_of, select_new
from holdfast.errors import StoreError

LONGEST_WAIT = 5.0  # seconds that a tool waits for its call to be stored


class TranscriptMirror(SessionStore):
    """The transcript of one session: loaded from its state, and appended to it."""

    def __init__(self, session: ResumableSession) -> None:
        self._session = session
        self._turn: FrameworkTurn | None = None
        self._lists: dict[str, list[Any]] = {}
        self._ids: dict[str, set[str]] = {}
        self._calls: set[str] = set()
        self._end: int | None = None  # of the main transcript, for the CLI
        self._is_ignoring = False
        self._writing = asyncio.Lock()
        self._changed = asyncio.Condition()

    @property
    def entries(self) -> list[Any]:
        """The main transcript."""
        return self._lists.get(MESSAGES, [])

    @property
    def turn(self) -> FrameworkTurn | None:
        return self._turn

    def has_transcripts(self, turn: FrameworkTurn) -> bool:
        """Return whether the transcripts are those before a turn."""
        lists = {name: stored for name in turn.list_names() if (stored := turn.stored_list(name))}
        return lists.keys() == self._lists.keys() and all(
            len(stored) == len(self._lists[name]) and stored[-1] == self._lists[name][-1]
            for name, stored in lists.items()
        )

    def use_state(self, state: Mapping[str, Any]) -> None:
        """Take the transcripts of a state, from which the CLI will resume."""
        self._lists, self._end = _lists_of(state), None
        self._ids = {name: set(ids_of(entries)) for name, entries in self._lists.items()}
        self._calls = {str(call.get("id")) for entries in self._lists.values() for call in find_calls(entries)}

    def end_turn(self, turn: FrameworkTurn, recorded: Any) -> TurnEnd:
        """Return the end of a turn: its entries are stored already."""
        rest = {name: turn.state[name] for name in turn.state if name not in self._lists}
        return TurnEnd(None, recorded, rest, dict.fromkeys(self._lists, ()))

    def hide_from(self, end: int) -> None:
        """Let the CLI resume without the last entries of the main transcript."""
        self._end = end

    def count_parallel_calls(self, call_id: str | None) -> int:
        return max(count_parallel_calls(entries, call_id) for entries in [[], *self._lists.values()])

    async def set_turn(self, turn: FrameworkTurn | None) -> None:
        """Let entries belong to a turn, or to none, once those that are being written are written."""
        async with self._writing:
            self._turn, self._end = turn, None

    async def ignore_during(self, stop: Awaitable[None]) -> None:
        """Ignore the last entries of a CLI whose conversation is not the stored one any more."""
        self._is_ignoring = True
        try:
            await stop
        finally:
            self._is_ignoring = False

    async def wait_for_call(self, call_id: str | None) -> None:
        """Wait until a call is stored; at most a few seconds, since no tool may wait forever."""
        if call_id is None:
            return
        try:
            async with asyncio.timeout(LONGEST_WAIT), self._changed:
                await self._changed.wait_for(lambda: call_id in self._calls)
        except TimeoutError:
            pass

    # -- the SDK's protocol --------------------------------------------------------------------------------------------

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        name = key.get("subpath") or MESSAGES
        async with self._writing:
            stored = self._ids.setdefault(name, set())
            new = select_new(entries, stored)
            if not new or self._is_ignoring:
                return
            try:
                await (self._turn or self._session).append_to_state(name_step(new), {name: new})
            except TurnEndedError as error:  # the SDK expects an `Exception`; the turn's own says more
                raise StoreError(str(error)) from None
            stored.update(ids_of(new))
            self._lists[name], self._end = [*self._lists.get(name, []), *new], None
        async with self._changed:
            self._calls.update(str(call.get("id")) for call in find_calls(new))
            self._changed.notify_all()

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        name = key.get("subpath") or MESSAGES
        entries = self._lists.get(name)
        return None if entries is None else entries[: self._end if name == MESSAGES else None]

    async def list_subkeys(self, key: Any) -> list[str]:
        return [name for name in self._lists if name != MESSAGES]


def _lists_of(state: Mapping[str, Any]) -> dict[str, list[Any]]:
    return {name: value for name, value in state.items() if isinstance(value, list)}
