"""Helpers of the tests of LlamaIndex workflows: events, and the end of a process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from workflows.events import Event

from holdfast import Client
from holdfast.adapters.base import session as sessions


class Killed(BaseException):
    """Stands for the end of the process, within a step."""


class Next(Event):
    number: int = 0


class Result(Event):
    number: int = 0


def restart() -> None:
    """Forget the turns that this process has finished, as a new one has."""
    sessions._finished.clear()


@asynccontextmanager
async def memory() -> AsyncIterator[Client]:
    restart()
    async with Client.memory() as client:
        yield client


async def kill(handler: Any) -> None:
    """Await a run that is killed in one of its steps; then a new process begins."""
    with pytest.raises(Killed):
        await asyncio.wait_for(handler, 60)
    restart()


async def finish(handler: Any) -> Any:
    return await asyncio.wait_for(handler, 60)
