"""Sixteen coroutines, each with a thread of its own, put to one PostgreSQL through one saver."""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from benchmarks.langgraph.graphs import texts
from benchmarks.measure import settle

COROUTINES = 16
PUTS = 15
ROUNDS = 7
MESSAGES = 20
POOL = 16


async def run(new_database: Callable[[str], str]) -> dict[str, Any]:
    async with _official(new_database("coroutines_official")) as official, _ours(new_database("coroutines")) as ours:
        savers = {"postgres": official, "holdfast_postgres": ours}
        rates: dict[str, list[float]] = {name: [] for name in savers}
        for number in range(ROUNDS + 1):
            for name, saver in savers.items() if number % 2 else reversed(savers.items()):
                settle()
                rate = await _round(saver, number)
                if number:  # the first one opens connections and prepares statements
                    rates[name].append(round(rate, 1))
    return {
        "coroutines": COROUTINES,
        "puts_each": PUTS,
        **{name: {"puts_per_second": statistics.median(found), "rounds": found} for name, found in rates.items()},
    }


@asynccontextmanager
async def _official(dsn: str) -> AsyncIterator[Any]:
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

    options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    async with AsyncConnectionPool(dsn, min_size=POOL, max_size=POOL, kwargs=options, open=False) as pool:
        saver = AsyncPostgresSaver(pool)
        await saver.setup()
        yield saver


@asynccontextmanager
async def _ours(dsn: str) -> AsyncIterator[Any]:
    from holdfast.langgraph import HoldfastSaver

    async with HoldfastSaver.from_postgres(dsn) as saver:
        yield saver


async def _round(saver: Any, number: int) -> float:
    began = time.perf_counter()
    await asyncio.gather(*(_puts(saver, f"{number}-{thread}") for thread in range(COROUTINES)))
    return COROUTINES * PUTS / (time.perf_counter() - began)


async def _puts(saver: Any, thread: str) -> None:
    said = texts(MESSAGES + PUTS)
    messages: list[Any] = [(HumanMessage, AIMessage)[number % 2](said[number]) for number in range(MESSAGES)]
    config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
    for number in range(PUTS):
        messages = [*messages, HumanMessage(said[MESSAGES + number])]
        checkpoint = empty_checkpoint()
        checkpoint["id"] = str(uuid6(clock_seq=number))
        checkpoint["channel_values"] = {"messages": messages}
        checkpoint["channel_versions"] = {"messages": f"{number + 1:032}.0"}
        metadata = {"source": "loop", "step": number, "parents": {}}
        config = await saver.aput(config, checkpoint, metadata, checkpoint["channel_versions"])
