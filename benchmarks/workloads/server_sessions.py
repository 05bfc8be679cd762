"""Workload S: many sessions of some steps each, as a fleet of agents makes them; what a session
takes, and what it costs.

docs/operations.md is filled from these figures. Making up the conversations takes longer than
saving them: that time is taken off.
"""

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.contenders.contender import Contender
from benchmarks.contenders.holdfast_servers import HoldfastPostgres, HoldfastRedis
from benchmarks.contenders.holdfast_sqlite import HoldfastUndeclared
from benchmarks.contenders.on_server import OnServer
from benchmarks.conversation import Conversation, compact_json
from benchmarks.measure import settle
from benchmarks.server_plan import ServerPlan

AT_ONCE = 32


async def run(plan: ServerPlan) -> dict[str, Any]:
    result: dict[str, Any] = {"sessions": plan.sessions, "steps": plan.session_steps, "at_once": AT_ONCE}
    with tempfile.TemporaryDirectory(prefix="holdfast-sessions-") as directory:
        sqlite = HoldfastUndeclared(Path(directory))
        servers = plan.field.servers
        stores: list[Contender] = [
            HoldfastPostgres(servers[HoldfastPostgres.key]),
            HoldfastRedis(servers[HoldfastRedis.key]),
        ]
        for one in (sqlite, *stores):
            settle()
            result[one.key] = await _Fleet(one, plan).measured()
    result["final_json_bytes"] = _final_json_bytes(plan.session_steps)
    return result


class _Fleet:
    def __init__(self, contender: Any, plan: ServerPlan) -> None:
        self._contender = contender
        self._server = contender.server if isinstance(contender, OnServer) else None
        self._plan = plan
        self._saves = plan.sessions * plan.session_steps
        self._making_up = 0.0

    async def measured(self) -> dict[str, Any]:
        if self._server is not None:
            self._server.clear()
        await self._contender.open()
        try:
            await self._lives("first", 1)  # tables, scripts and connections are there
            begun = self._bytes()
            work = None if self._server is None else self._server.work()
            self._making_up = 0.0
            cpu, wall = time.process_time(), time.perf_counter()
            await self._all_sessions()
            took = time.perf_counter() - wall - self._making_up
            spent = time.process_time() - cpu - self._making_up
            result = {
                "saves_per_second": round(self._saves / took, 1),
                "client_cpu_us_per_save": round(spent / self._saves * 1e6, 1),
                "bytes_empty": begun,
                "bytes_per_session": round((self._bytes() - begun) / self._plan.sessions),
            }
            if self._server is not None and work is not None:
                done = self._server.work().since(work)
                result |= {
                    "server_cpu_us_per_save": round(done.cpu_seconds / self._saves * 1e6, 1),
                    "requests_per_save": round(done.requests / self._saves, 3),
                    "bytes_logged_per_session": round(done.bytes_logged / self._plan.sessions),
                    "bytes_logged_per_save": round(done.bytes_logged / self._saves),
                }
            if isinstance(self._contender, HoldfastPostgres):
                result |= self._vacuumed(begun)
            return result | await self._collected()
        finally:
            await self._contender.close()

    async def _all_sessions(self) -> None:
        names = iter(range(self._plan.sessions))

        async def worker() -> None:
            for number in names:
                await self._lives(f"session-{number}", number)

        await asyncio.gather(*(worker() for _ in range(AT_ONCE)))

    async def _lives(self, session: str, seed: int) -> None:
        conversation = Conversation(seed)
        for _ in range(self._plan.session_steps):
            began = time.thread_time()
            step = conversation.advance()
            self._making_up += time.thread_time() - began
            await self._contender.save(session, step)

    def _bytes(self) -> int:
        return self._contender.bytes_while_open()

    async def _collected(self) -> dict[str, Any]:
        """What it costs to let go all but the last step of each session."""
        work = None if self._server is None else self._server.work()
        began = time.perf_counter()
        await self._contender.client.retain(keep_last=1, dry_run=False)
        result = {"collect_seconds": round(time.perf_counter() - began, 3)}
        if self._server is not None and work is not None:
            logged = self._server.work().since(work).bytes_logged
            result["collect_bytes_logged_per_session"] = round(logged / self._plan.sessions)
        return result

    def _vacuumed(self, begun: int) -> dict[str, Any]:
        server = self._contender.server
        dead = server.ask("SELECT sum(n_dead_tup)::bigint FROM pg_stat_user_tables")
        began, work = time.perf_counter(), server.work()
        server.ask_nothing("VACUUM ANALYZE")
        return {
            "dead_rows_per_session": round(dead / self._plan.sessions, 1),
            "vacuum_seconds": round(time.perf_counter() - began, 3),
            "vacuum_bytes_logged_per_session": round(server.work().since(work).bytes_logged / self._plan.sessions),
            "bytes_per_session_after_vacuum": round((self._bytes() - begun) / self._plan.sessions),
        }


def _final_json_bytes(steps: int) -> int:
    """Of one session, on average over some."""
    sizes = []
    for seed in range(20):
        conversation = Conversation(seed)
        for _ in range(steps):
            conversation.advance()
        sizes.append(len(compact_json(conversation.state)))
    return round(sum(sizes) / len(sizes))
