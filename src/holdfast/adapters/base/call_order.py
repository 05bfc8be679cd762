"""The order in which calls that run side by side have ended.

In the next life their recorded results would come all at once. What reads several of them would read
them in another order, and ask its model another question.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.adapters.base.turn import FrameworkTurn
from holdfast.errors import CorruptError

WAIT_SECONDS = 10.0  # for calls that a program which was changed does not make any more


class CallOrder:
    """Lets the calls of a turn end in the order of its earlier lives, which is in the state under `key`.

    A call that has not ended in an earlier life waits for all that have: none of them needs it.
    """

    def __init__(self, turn: FrameworkTurn, key: str) -> None:
        known = turn.state.get(key, [])
        if not isinstance(known, list) or not all(isinstance(call, str) for call in known):
            raise CorruptError(f"the state of session {turn.session_id!r:.60} has no list of calls as {key!r}")
        self._turn = turn
        self._key = key
        self._known = known
        self._ended = list(known)
        self._counted: Counter[str] = Counter()
        self._returned: set[str] = set()
        self._is_returned = asyncio.Event()

    @asynccontextmanager
    async def hold(self, name: str, within: str | None = None) -> AsyncIterator[None]:
        """Make a call when it is its turn, and note its end: that is saved with the next record.

        `within` is what the names of the calls within it begin with: the next life makes none of them.
        """
        call = f"{name}:{self._counted[name]}"
        self._counted[name] += 1
        await self._wait_for(set(self._known[: self._known.index(call)]) if call in self._known else set(self._known))
        try:
            yield
        finally:
            self._returned.add(call)
            self._is_returned.set()
        self._ended = [item for item in self._ended if within is None or not item.startswith(within)]
        if call not in self._ended:
            self._ended.append(call)
        self._turn.put_state({self._key: list(self._ended)})

    async def _wait_for(self, calls: set[str]) -> None:
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while self._known and calls - self._returned:
                    self._is_returned.clear()
                    await self._is_returned.wait()
        except TimeoutError:
            self._known = []
            self._is_returned.set()
