"""Run the benchmarks on servers: `python -m benchmarks.servers [--quick] [--only A,B] [--ours] [--results DIR]`."""

import argparse
import asyncio
import importlib
import importlib.util
import json
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from benchmarks import environment, operations_figures, report, server_goals, server_report
from benchmarks.measure import settle
from benchmarks.server_plan import Field, entered, full_plan, quick_plan

HERE = Path(__file__).resolve().parent
WORKLOADS = {"A": "server_growing", "B": "server_throughput", "R": "server_restore", "S": "server_sessions"}
PACKAGES = (
    "holdfast",
    "redis",
    "hiredis",
    "psycopg",
    "checkpnt",
    "langgraph-checkpoint",
    "langgraph-checkpoint-postgres",
    "psycopg-pool",
)


def main() -> None:
    arguments = _arguments()
    chosen = arguments.only or list(WORKLOADS)
    whole = not arguments.quick and not arguments.ours and chosen == list(WORKLOADS)
    directory = arguments.results or (HERE / "results" if whole else HERE / "results" / "partial")
    with entered(arguments.stores, with_peers=not arguments.ours) as field:
        results = measure(chosen, field, quick=arguments.quick, stores=arguments.stores)
    write(results, directory)
    operations_figures.after(directory)
    print(f"\n{report.goals_as_text(server_goals.verdicts(results))}\n\nwritten: {directory}")
    if results["failed"]:
        sys.exit(f"failed: {', '.join(results['failed'])}")


def measure(chosen: list[str], field: Field, *, quick: bool, stores: Path | None) -> dict[str, Any]:
    plan = (quick_plan if quick else full_plan)(field)
    about = environment.describe(stores or Path(tempfile.gettempdir()), PACKAGES)
    about["servers"] = ", ".join(sorted({server.version() for server in field.servers.values()}, reverse=True))
    results: dict[str, Any] = {"quick": quick, "failed": {}, "environment": about}
    began = time.perf_counter()
    for name in chosen:
        workload = importlib.import_module(f"benchmarks.workloads.{WORKLOADS[name]}")
        settle()
        started = time.perf_counter()
        print(f"{name:>8}  {workload.__doc__.splitlines()[0]}", flush=True)
        try:
            results[name] = asyncio.run(workload.run(plan))
        except Exception as error:
            traceback.print_exc()
            results["failed"][name] = f"{type(error).__name__}: {error}"
        print(f"{'':>8}  {time.perf_counter() - started:.1f} s", flush=True)
    results["seconds"] = round(time.perf_counter() - began, 1)
    return results


def write(results: dict[str, Any], directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "servers.json").write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (directory / "servers.md").write_text(server_report.markdown(results), encoding="utf-8")
    if "A" in results and importlib.util.find_spec("matplotlib"):
        from benchmarks import plot

        plot.draw(results["A"], directory / "servers.png", plot.SERVER_LINES, "Valkey and PostgreSQL")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.servers", description="Measure holdfast on Redis and PostgreSQL beside its peers."
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, half a minute: does everything still run?")
    parser.add_argument("--only", type=_names, metavar="A,B,…", help=f"some of {','.join(WORKLOADS)}")
    parser.add_argument("--ours", action="store_true", help="holdfast alone; needs none of the peers' packages")
    parser.add_argument("--results", type=Path, metavar="DIR", help="where the results go")
    parser.add_argument("--stores", type=Path, metavar="DIR", help="where the servers keep their files; not on tmpfs")
    return parser.parse_args()


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in WORKLOADS:
            raise argparse.ArgumentTypeError(f"no workload is called {name!r}; there are {', '.join(WORKLOADS)}")
    return names


if __name__ == "__main__":
    main()
