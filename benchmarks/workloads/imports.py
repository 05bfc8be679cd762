"""What `import holdfast` costs over `import asyncio`, and that it drags in nothing heavy."""

import statistics
from typing import Any

from benchmarks.plan import Plan
from benchmarks.subprocesses import run_code

UNWANTED = (
    "aiosqlite",
    "attr",
    "attrs",
    "autogen",
    "click",
    "crewai",
    "fastapi",
    "langchain_core",
    "langgraph",
    "psycopg",
    "pydantic",
    "redis",
    "rich",
    "starlette",
    "uvicorn",
)
MEASURE = """
import resource, json
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps((used.ru_utime + used.ru_stime) * 1000))
"""
LOADED = """
import json, sys
import holdfast
from holdfast import Client, SyncClient
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


async def run(plan: Plan) -> dict[str, Any]:
    programs = {
        "asyncio": "import asyncio" + MEASURE,
        "holdfast": "import asyncio, holdfast\nfrom holdfast import Client" + MEASURE,
        "holdfast_and_its_sqlite_backend": "import asyncio, holdfast, holdfast.backends.sqlite.backend" + MEASURE,
    }
    loaded = run_code(LOADED)  # also leaves compiled files behind for the runs that count
    cpu: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(plan.import_runs):
        for name, program in programs.items():
            cpu[name].append(run_code(program))
    medians = {name: round(statistics.median(values), 2) for name, values in cpu.items()}
    return {
        "cpu_ms": medians,
        "over_asyncio_ms": round(medians["holdfast"] - medians["asyncio"], 2),
        "unwanted_modules": [name for name in UNWANTED if name in loaded],
    }
