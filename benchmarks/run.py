"""Run the benchmarks: `python -m benchmarks.run [--quick] [--only A,B] [--ours] [--rounds N] [--results DIR]`."""

import argparse
import asyncio
import importlib.util
import json
import sys
import time
import traceback
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import environment, goals, operations_figures, report
from benchmarks.measure import settle
from benchmarks.plan import Plan, full_plan, quick_plan

HERE = Path(__file__).resolve().parent
WORKLOADS = {
    "A": "growing",
    "B": "throughput",
    "H": "history",
    "cold": "cold_start",
    "memory": "memory",
    "fork": "fork",
    "import": "imports",
    "cli": "command_line",
}


def main() -> None:
    arguments = _arguments()
    chosen = arguments.only or list(WORKLOADS)
    whole = not arguments.quick and not arguments.ours and chosen == list(WORKLOADS)
    directory = arguments.results or (HERE / "results" if whole else HERE / "results" / "partial")
    stores = arguments.stores or HERE / ".stores"
    stores.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="run-", dir=stores, ignore_cleanup_errors=True) as own:
        results = measure(chosen, arguments, Path(own))
    write(results, directory)
    operations_figures.after(directory)
    print(f"\n{report.goals_as_text(goals.verdicts(results))}\n\nwritten: {directory}")
    if results["failed"]:
        sys.exit(f"failed: {', '.join(results['failed'])}")


def measure(chosen: list[str], arguments: argparse.Namespace, stores: Path) -> dict[str, Any]:
    plan: Plan = (quick_plan if arguments.quick else full_plan)(
        stores, with_peers=not arguments.ours, rounds=arguments.rounds
    )
    results: dict[str, Any] = {"quick": arguments.quick, "failed": {}, "environment": environment.describe(stores)}
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
    (directory / "results.json").write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (directory / "results.md").write_text(report.markdown(results), encoding="utf-8")
    if "A" in results and importlib.util.find_spec("matplotlib"):
        from benchmarks import plot

        plot.draw(results["A"], directory / "results.png")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description="Measure holdfast beside its peers.")
    parser.add_argument("--quick", action="store_true", help="small sizes, a minute or two: does everything still run?")
    parser.add_argument("--only", type=_names, metavar="A,B,…", help=f"some of {','.join(WORKLOADS)}")
    parser.add_argument("--ours", action="store_true", help="holdfast alone; needs none of the peers' packages")
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds of workload A, except at its largest size")
    parser.add_argument("--results", type=Path, metavar="DIR", help="where the results go")
    parser.add_argument("--stores", type=Path, metavar="DIR", help="where the databases go meanwhile; not on tmpfs")
    return parser.parse_args()


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in WORKLOADS:
            raise argparse.ArgumentTypeError(f"no workload is called {name!r}; there are {', '.join(WORKLOADS)}")
    return names


if __name__ == "__main__":
    main()
