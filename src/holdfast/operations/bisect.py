"""Bisection of a session: the first checkpoint on the path to its head that a predicate calls bad."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from holdfast.model import ids
from holdfast.model.bisect import Bisection, Search
from holdfast.operations import resolve, restore
from holdfast.operations.context import StoreContext

Predicate = Callable[..., bool | Awaitable[bool]]
MakeDirectory = Callable[[StoreContext, bytes], AbstractAsyncContextManager[Path | None]]


async def bisect(
    ctx: StoreContext, session_id: str, predicate: Predicate, make_directory: MakeDirectory | None = None
) -> Bisection:
    """Find the first bad checkpoint; restores O(log n) checkpoints.

    With `make_directory`, the predicate also gets the files of each.
    """
    search = Search((await resolve.load_branch(ctx, session_id))[::-1])
    while (candidate := search.next()) is not None:
        id_ = ids.from_text(candidate.checkpoint_id)
        checkpoint = await restore.restore(ctx, id_)
        if make_directory is None:
            is_good = await _answer(predicate(checkpoint))
        else:
            async with make_directory(ctx, id_) as directory:
                is_good = await _answer(predicate(checkpoint, directory))
        search.record(is_good=is_good)
    return search.found(session_id)


async def _answer(given: bool | Awaitable[bool]) -> bool:
    import inspect

    return bool(await given if inspect.isawaitable(given) else given)
