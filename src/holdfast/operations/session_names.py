"""Generated names of sessions: `run-001-fork-1` for the first fork of `run-001`.

`run-001-replay-1` is a replay. A number that is free when it is looked up may be taken a moment
later. The commit that makes the session decides, and the loser takes the next number.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection

from holdfast.format.rows import head
from holdfast.operations import lookup
from holdfast.operations.context import StoreContext

MAX_LENGTH = 200  # characters of the name that a new one begins with
_NUMBERED = re.compile(r"(.+)-(?:fork|replay)-[0-9]+", re.DOTALL)
_OF_A_DIRECTORY = re.compile(r"(?:workspace|restores of) /(?:.*/)?([^/]+)", re.DOTALL)


def find_stem(session_id: str) -> str:
    """Return the beginning of the names of a session's forks: the first session's name, also for a fork."""
    numbered = _NUMBERED.fullmatch(session_id)
    name = numbered[1] if numbered is not None else session_id
    # The session of a directory's snapshots is named by its path: with a number appended it would
    # be another directory's.
    directory = _OF_A_DIRECTORY.fullmatch(name)
    return (directory[1] if directory is not None else name)[:MAX_LENGTH]


async def free_name(ctx: StoreContext, tree: bytes, begin: str, taken: Collection[str] = ()) -> str:
    """Return a name that begins so, followed by a number, that no session has; none of `taken`."""

    async def is_used(name: str) -> bool:
        if name in taken:
            return True
        key = head.session_key(name)
        # A session whose fork was undone no longer exists, but has a head: a redo brings it back.
        return await lookup.find_tree(ctx, key) is not None or await lookup.find_head(ctx, key, tree) is not None

    return await free_number(begin, is_used)


async def free_number(begin: str, is_used: Callable[[str], Awaitable[bool]]) -> str:
    """Return the name with the first number after those that are used; reads O(log n) names of n."""
    used, free = 0, 1
    while await is_used(f"{begin}{free}"):
        used, free = free, free * 2
    while free - used > 1:
        middle = (used + free) // 2
        if await is_used(f"{begin}{middle}"):
            used = middle
        else:
            free = middle
    return f"{begin}{free}"
