"""The target of an operation: the checkpoint that its caller names (`operations/resolve.py`).

An exact id costs nothing: it is used as an id before anything is searched.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from holdfast.errors import CheckpointNotFoundError
from holdfast.model import ids

if TYPE_CHECKING:
    from holdfast.operations.context import StoreContext

R = TypeVar("R")
SESSION_VERSION = 4  # of the UUIDs that sessions without a name are called by


def exact_id(ref: str) -> bytes | None:
    """Return the text as an id; None for any other reference. Raise an error if it is no text."""
    import uuid  # few programs that import holdfast have it yet, and it is slow to import

    try:
        return uuid.UUID(ref).bytes
    except ValueError:
        return None
    except (AttributeError, TypeError):
        return ids.from_text(ref)  # raises an error that says what is wrong with it


async def id_of(ctx: StoreContext, ref: str) -> bytes:
    """Return the id of the checkpoint. A text that may also be the name of a session is searched for."""
    given = exact_id(ref)
    return given if given is not None and not _may_be_session(given) else await _search(ctx, ref)


async def id_or_search(ctx: StoreContext, ref: str) -> bytes:
    """Return the same for callers that never name a session by a text in the form of an id."""
    given = exact_id(ref)
    return await _search(ctx, ref) if given is None else given


async def act_on(ctx: StoreContext, ref: str, act: Callable[[bytes], Awaitable[R]]) -> R:
    """Call `act` with the id of the checkpoint.

    A text that may be an id or the name of a session is an id first. It is searched for only if
    `act` finds no such checkpoint: `act` then raises `CheckpointNotFoundError` or returns False.
    """
    given = exact_id(ref)
    if given is None:
        return await act(await _search(ctx, ref))
    if not _may_be_session(given):
        return await act(given)
    try:
        done = await act(given)
    except CheckpointNotFoundError:
        found = await _search_again(ctx, ref)
        if found is None or found == given:
            raise
    else:
        if done is not False:
            return done
        found = await _search_again(ctx, ref)
        if found is None or found == given:
            return done
    return await act(found)


async def _search(ctx: StoreContext, ref: str) -> bytes:
    from holdfast.operations import resolve  # most callers give an id

    return await resolve.resolve(ctx, ref)


async def _search_again(ctx: StoreContext, ref: str) -> bytes | None:
    try:
        return await _search(ctx, ref)
    except CheckpointNotFoundError:
        return None


def _may_be_session(id_: bytes) -> bool:
    return id_[6] >> 4 == SESSION_VERSION
