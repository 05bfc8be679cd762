"""`holdfast timeline` on a long session, as a person waits for it: from the start of the process to its end."""

import importlib.util
import statistics
import subprocess
import sys
import time
from typing import Any

from benchmarks.contenders.contender import kept_on_disk, opened
from benchmarks.contenders.holdfast_sqlite import HoldfastDeclared
from benchmarks.conversation import Conversation
from benchmarks.plan import Plan

SESSION = "long"
COMMAND = "from holdfast.cli.main import main; main()"


async def run(plan: Plan) -> dict[str, Any]:
    if importlib.util.find_spec("holdfast.cli.main") is None:
        return {"skipped": "the command line is not there yet"}
    store = HoldfastDeclared(plan.stores / "command-line")
    with kept_on_disk([store]):
        async with opened([store]):
            conversation = Conversation(seed=5)
            for _ in range(plan.command_checkpoints):
                await store.save(SESSION, conversation.advance())
        url = f"sqlite:///{store.path.resolve()}"
        walls: dict[str, list[float]] = {"timeline": [], "timeline --graph": [], "timeline --json": []}
        for _ in range(plan.command_runs):
            for command, times in walls.items():
                times.append(_run_command([*command.split(), SESSION, "--store", url]))
    return {
        "checkpoints": plan.command_checkpoints,
        "seconds": {command: round(statistics.median(times), 4) for command, times in walls.items()},
    }


def _run_command(arguments: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", COMMAND, *arguments], check=True, capture_output=True)
    return time.perf_counter() - began
