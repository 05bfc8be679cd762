"""Run the benchmarks: `python -m benchmarks.run [--quick] [--only A,B] [--ours] [--rounds N] [--results DIR]`."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import environment, goals, operations_figures, pages, plot, report, workload_runs
from benchmarks.plan import full_plan, quick_plan

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
    parser = workload_runs.arguments("benchmarks.run", "Measure holdfast beside its peers.", WORKLOADS)
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds of workload A, except at its largest size")
    given = parser.parse_args()
    chosen = given.only or list(WORKLOADS)
    directory = workload_runs.results_directory(given, chosen, WORKLOADS)
    stores = given.stores or Path(__file__).resolve().parent / ".stores"
    stores.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="run-", dir=stores, ignore_cleanup_errors=True) as own:
        plan = (quick_plan if given.quick else full_plan)(Path(own), with_peers=not given.ours, rounds=given.rounds)
        results = {"quick": given.quick, "environment": environment.describe(Path(own))}
        results |= workload_runs.measure(chosen, WORKLOADS, plan)
    workload_runs.write(results, directory, "results", report.markdown, plot.draw)
    operations_figures.after(directory)
    print(f"\n{pages.as_text(goals.verdicts(results))}\n\nwritten: {directory}")
    if results["failed"]:
        sys.exit(f"failed: {', '.join(results['failed'])}")


if __name__ == "__main__":
    main()
