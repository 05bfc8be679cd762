"""The soak campaign: all crash points, a thousand kills, power cuts, bit flips, fuzzing, long runs.

    python tests/support/soak.py [--kills 1000] [--jobs 2] [--only tests/durability] [PYTEST ARGUMENTS]

Runs tests/durability, tests/integrity, tests/hostile, the kill campaigns of each subject and the
state machine with HOLDFAST_SOAK=1 and prints what was done. Exits with pytest's status. Its last
result stands in docs/reliability.md.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RESTORES = ("tests/workspace/test_restore_kills.py", "tests/workspace/test_restore_crash_points.py")
RUNS = ("tests/runs/test_batch_crash.py",)
MACHINE = (
    "tests/state/test_store_machine_properties.py",
    "tests/state/test_store_machine_on_redis_properties.py",
    "tests/state/test_processes_properties.py",
)
LONGEST = 4 * 3600  # seconds, for a test that sets itself no other limit
CRASHES = (
    "tests/agent_loop/test_agent_crash.py",
    "tests/bundle/test_import_crash.py",
    "tests/coordination/test_claim_races_crash.py",
    "tests/coordination/test_topic_faults.py",
    "tests/coordination/test_topics_across_processes.py",
    "tests/coordination/test_topics_crash.py",
    "tests/coordination/test_wrong_clocks.py",
    "tests/retention/test_gc_beside_writers_crash.py",
    "tests/runs/test_effect_kills_crash.py",
    "tests/runs/test_random_programs_crash.py",
    "tests/backends/redis/test_resharding.py",
)
EVERYTHING = ("tests/durability", "tests/integrity", "tests/hostile", *CRASHES, *MACHINE, *RESTORES, *RUNS)


def commit() -> str:
    done = subprocess.run(
        ["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def summary(tallied: Path) -> str:
    """A table: what was done how often, and what else was counted."""
    counts: defaultdict[str, Counter] = defaultdict(Counter)
    for line in tallied.read_text().splitlines():
        said = json.loads(line)
        counts[said.pop("what")].update({name: int(count) for name, count in said.items()})
    rows = ["| what | done | wrong | also counted |", "|---|---:|---:|---|"]
    for what, counted in sorted(counts.items()):
        done, wrong = counted.pop("done"), counted.pop("wrong", 0)
        others = ", ".join(f"{count:,} {name}" for name, count in counted.items())
        rows.append(f"| {what} | {done:,} | {wrong:,} | {others} |")
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000, help="random kills over all backends")
    parser.add_argument("--jobs", type=int, default=2, help="tests side by side")
    parser.add_argument("--only", action="append", help="only these tests, instead of all")
    options, others = parser.parse_known_args()
    seed = os.environ.get("HOLDFAST_SEED") or str(time.time_ns())
    with tempfile.TemporaryDirectory(prefix="holdfast-soak-") as folder:
        tallied = Path(folder, "tally")
        tallied.touch()
        environment = os.environ | {
            "HOLDFAST_SOAK": "1",
            "HOLDFAST_SEED": seed,
            "HOLDFAST_KILLS": str(options.kills),
            "HOLDFAST_TALLY": str(tallied),
        }
        command = [sys.executable, "-m", "pytest", "-n", str(options.jobs), "--dist", "worksteal", "--basetemp"]
        command += [f"{folder}/pytest", "--timeout", str(LONGEST), *(options.only or EVERYTHING), *others]
        started = time.monotonic()
        status = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
        minutes = (time.monotonic() - started) / 60
        print(f"\n{time.strftime('%Y-%m-%d')}, commit {commit()}, HOLDFAST_SEED={seed}")
        print(f"Python {platform.python_version()}, {platform.system()} {platform.release()}, {minutes:.0f} minutes")
        print(f"\n{summary(tallied)}\n\n{'all passed' if status == 0 else 'FAILED'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
