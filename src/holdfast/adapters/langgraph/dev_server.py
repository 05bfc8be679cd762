"""The checkpointer of `langgraph dev`: what `langgraph.json` names, with settings from the environment."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from holdfast.adapters.langgraph.saver import HoldfastSaver
from holdfast.errors import UsageError

STORE = "HOLDFAST_URL"
NUMBERS = {"HOLDFAST_TTL_SECONDS": ("ttl_seconds", float), "HOLDFAST_KEEP_LAST": ("keep_last", int)}


@asynccontextmanager
async def dev_checkpointer() -> AsyncIterator[HoldfastSaver]:
    """For `"checkpointer": {"path": "holdfast.langgraph.dev_checkpointer"}` in langgraph.json.

    The server calls it without arguments, once for each of its threads that run graphs, and closes what it gives when
    it stops. `HOLDFAST_URL` names the store, by its URL or as the path of a SQLite file; without it,
    `.holdfast/store.db` where the server was started. `HOLDFAST_TTL_SECONDS` ends each checkpoint after so long,
    and `HOLDFAST_KEEP_LAST` leaves so many of each thread's namespace.
    """
    # The server refuses calls that block its event loop, and opening a file is one.
    saver = await asyncio.to_thread(_open)
    async with saver:
        yield saver


def _open() -> HoldfastSaver:
    options: dict[str, Any] = {}
    for variable, (name, number) in NUMBERS.items():
        given = os.environ.get(variable)
        if given:
            try:
                options[name] = number(given)
            except ValueError:
                raise UsageError(f"{variable} is a number, not {given!r:.60}") from None
    where = os.environ.get(STORE)
    if not where:
        return HoldfastSaver.from_sqlite(**options)
    if "://" in where:
        return HoldfastSaver.from_url(where, **options)
    return HoldfastSaver.from_sqlite(os.path.expanduser(where), **options)  # noqa: PTH111 - any text is a path here
