"""Run the benchmarks on servers: `python -m benchmarks.servers [--quick] [--only A,B] [--ours] [--results DIR]`."""

import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks import environment, operations_figures, pages, plot, server_goals, server_report, workload_runs
from benchmarks.server_plan import entered, full_plan, quick_plan

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
    words = "Measure holdfast on Redis and PostgreSQL beside its peers."
    given = workload_runs.arguments("benchmarks.servers", words, WORKLOADS).parse_args()
    chosen = given.only or list(WORKLOADS)
    directory = workload_runs.results_directory(given, chosen, WORKLOADS)
    with entered(given.stores, with_peers=not given.ours) as field:
        about = environment.describe(given.stores or Path(tempfile.gettempdir()), PACKAGES)
        about["servers"] = ", ".join(sorted({server.version() for server in field.servers.values()}, reverse=True))
        plan = (quick_plan if given.quick else full_plan)(field)
        results = {"quick": given.quick, "environment": about} | workload_runs.measure(chosen, WORKLOADS, plan)
    draw = partial(plot.draw, lines=plot.SERVER_LINES, where="Valkey and PostgreSQL")
    workload_runs.write(results, directory, "servers", server_report.markdown, draw)
    operations_figures.after(directory)
    print(f"\n{pages.as_text(server_goals.verdicts(results))}\n\nwritten: {directory}")
    if results["failed"]:
        sys.exit(f"failed: {', '.join(results['failed'])}")


if __name__ == "__main__":
    main()
