"""How much a process grows that appends to each of many sessions of 1 MB, twice round."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.contenders.contender import kept_on_disk, opened
from benchmarks.contenders.holdfast_sqlite import AGENT, DURABILITY, HoldfastUndeclared
from benchmarks.conversation import Conversation, State, Step
from benchmarks.measure import settle
from benchmarks.plan import MEGABYTE, Plan
from benchmarks.subprocesses import run_module

ROUNDS = 2
MEBIBYTE = 1 << 20
DOCUMENTED_CAP = 64 * MEBIBYTE
"""What the README says: twice the default of the client's `cache_bytes`."""


async def run(plan: Plan) -> dict[str, Any]:
    result: dict[str, Any] = {"sessions": plan.memory_sessions, "cap_mib": DOCUMENTED_CAP / MEBIBYTE}
    for way in ("undeclared", "declared"):
        store = HoldfastUndeclared(plan.stores / f"memory-{way}")
        with kept_on_disk([store]):
            async with opened([store]):
                state = _base_state()
                for number in range(plan.memory_sessions):
                    await store.save(f"session-{number}", Step(0, _state_of(state, number, 0), {}, []))
            result[way] = run_module(__name__, [str(store.path), way, str(plan.memory_sessions)])
    return result


def _base_state() -> State:
    return Conversation(seed=4).grow_to(MEGABYTE).state


def _state_of(base: State, number: int, appended: int) -> State:
    """Sessions differ in their first message, and so in every digest; the rest is shared to keep the child small."""
    own = [{"id": f"msg_{number}", "role": "user", "content": f"session {number}"}]
    return {**base, "messages": [*own, *base["messages"], *(_appended(number, turn) for turn in range(appended))]}


def _appended(number: int, turn: int) -> dict[str, Any]:
    return {"id": f"msg_{number}_{turn}", "role": "user", "content": "And now? " * 50}


async def _child(path: Path, way: str, sessions: int) -> dict[str, Any]:
    from holdfast import Client

    base = _base_state()
    rest = {key: value for key, value in base.items() if key != "messages"}
    async with Client.sqlite(path, durability=DURABILITY) as client:
        await client.timeline(agent_id=AGENT, session_id="session-0", limit=1)
        settle()
        _forget_peak()
        before = _resident_bytes()
        peaks = []
        for turn in range(ROUNDS):
            for number in range(sessions):
                if way == "declared":
                    state, append = rest, {"messages": [_appended(number, turn)]}
                else:
                    state, append = _state_of(base, number, turn + 1), None
                await client.save(agent_id=AGENT, execution_state=state, append=append, session_id=f"session-{number}")
            peaks.append(round((_peak_bytes() - before) / MEBIBYTE, 1))
        now = _resident_bytes()
    return {
        "before_mib": round(before / MEBIBYTE, 1),
        "peak_growth_mib_by_round": peaks,
        "peak_growth_mib": peaks[-1],
        "growth_at_end_mib": round((now - before) / MEBIBYTE, 1),
    }


def _resident_bytes() -> int:
    return _status("VmRSS")


def _peak_bytes() -> int:
    """Since `_forget_peak`. (`ru_maxrss` will not do: a process inherits it from the one that started it.)"""
    return _status("VmHWM")


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_child(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))))
