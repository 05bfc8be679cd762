"""The figures that README.md shows, from the last results: nobody has to copy them, and nobody can copy them wrong."""

import json
import re
from pathlib import Path
from typing import Any

from benchmarks import goals
from benchmarks.tables import number, table

SHOWN = {
    "holdfast": "**holdfast**",
    "holdfast_declared": "**holdfast**, declared appends",
    "langgraph": "langgraph-checkpoint-sqlite",
    "checkpnt": "checkpnt",
}
LENGTHS = ("1000", "3000")
_SECTION = re.compile(r"(?<=\n## Figures\n\n).*?(?=\n\n## )", re.DOTALL)


def updated(readme: str, directory: Path) -> str:
    """The README with the figures of the results in that directory."""
    results = json.loads((directory / "results.json").read_text("utf-8"))
    section = "\n".join([*_steps(results), "", *_words(results)])
    return _SECTION.sub(lambda _: section, readme, count=1)


def _steps(results: dict[str, Any]) -> list[str]:
    grown = [results["A"][length] for length in LENGTHS]
    sizes = " and ".join(number(round(one["final_json_bytes"] / 1e6, 1)) for one in grown)
    head = [
        f"1,000 and 3,000 steps of a conversation ({sizes} MB of JSON)",
        "MB on disk", "save, ms", "verified restore, ms", "timeline of 20, ms",
    ]  # fmt: skip
    rows = []
    for name, title in SHOWN.items():
        measured = [one["contenders"][name] for one in grown]
        rows.append(
            [
                title,
                " · ".join(number(one["bytes_on_disk"] / 1e6) for one in measured),
                *(
                    " · ".join(number(one[what]["p50_ms"]) for one in measured)
                    for what in ("save_at_end", "restore_latest", "timeline")
                ),
            ]
        )
    return list(table(head, rows))


def _words(results: dict[str, Any]) -> list[str]:
    crowd = {name: number(one["saves_per_second"]) for name, one in results["B"]["32"]["contenders"].items()}
    judged = [one.reached for one in goals.verdicts(results)]
    reached, missed = judged.count(True), judged.count(False)
    return [
        "Medians, SQLite, WAL and `synchronous=FULL` for all, in one interleaved run; langgraph-checkpoint-sqlite restores without verifying. With 32",
        f"writers, each in its own session: {crowd['holdfast']} saves of 1 KB a second, langgraph-checkpoint-sqlite {crowd['langgraph']}, checkpnt {crowd['checkpnt']}.",
        f"`make bench` repeats it; these are of commit {results['environment']['commit'][:7]}. Of the {len(judged)} goals we set ourselves {reached} are reached and {missed} are not: all of them, with versions and",
        "machine, are in [benchmarks/results/results.md](benchmarks/results/results.md).",
    ]  # fmt: skip
