"""The figures in README.md and docs/comparison.md, written from the last results."""

import json
import re
import textwrap
from pathlib import Path
from typing import Any

from benchmarks import goals, runs, server_goals
from benchmarks.langgraph import report as langgraph_report
from benchmarks.tables import number, table

SHOWN = {
    "holdfast": "**holdfast**",
    "holdfast_declared": "**holdfast**, declared appends",
    "langgraph": "langgraph-checkpoint-sqlite",
    "checkpnt": "checkpnt",
}
LENGTHS = ("1000", "3000")
# Single figures in the text of the comparison: results, judge, figure, and what stands before and after it.
QUOTED = (
    (
        "langgraph",
        langgraph_report.verdicts,
        "bytes after 1,000 turns over SqliteSaver's (goal 1/400)",
        r"(?<=\| bytes after 1,000 turns \| )\S+(?= of the SQLite saver's)",
    ),
    (
        "results",
        goals.verdicts,
        "verified restore at step 1,000 over langgraph-sqlite's (unverified)",
        r"(?<=\| restore at 1,000 steps \| )\S+(?= times as long, verified)",
    ),
    (
        "runs",
        runs.verdicts,
        "CPU of a step over that of DBOS's",
        r"(?<=holdfast step takes )\S+(?= of the CPU of a DBOS step)",
    ),
    (
        "servers",
        server_goals.verdicts,
        "Redis, one writer: median save of a 1 KB state over a raw SET of the same bytes",
        r"(?<=A save takes )\S+(?= times as long as a raw `SET`)",
    ),
)
_SENTENCE = re.compile(r"^Measured on Python.*?(?=\n\n)", re.DOTALL | re.MULTILINE)
_SECTION = re.compile(r"(?<=\n## Figures\n\n).*?(?=\n\n## )", re.DOTALL)


def update_readme(text: str, directory: Path) -> str:
    """Return the README with the sentence of figures from the results in that directory."""
    sentence = "\n".join(_wrap(_summary(_load(directory))))
    return _SENTENCE.sub(lambda _: sentence, text, count=1)


def update_comparison(text: str, directory: Path) -> str:
    """Return the comparison page with its figures from the results in that directory."""
    for stem, judge, figure, place in QUOTED:
        measured = {one.figure: one.measured for one in judge(_load(directory, stem))}
        text, found = re.subn(place, measured[figure].split()[0], text)
        assert found == 1, figure
    results = _load(directory)
    section = "\n".join([*_steps(results), "", *_wrap(_conditions(results))])
    return _SECTION.sub(lambda _: section, text, count=1)


def _load(directory: Path, stem: str = "results") -> dict[str, Any]:
    results: dict[str, Any] = json.loads((directory / f"{stem}.json").read_text("utf-8"))
    return results


def _wrap(sentences: str) -> list[str]:
    return textwrap.wrap(sentences, 98, break_long_words=False, break_on_hyphens=False)


def _summary(results: dict[str, Any]) -> str:
    measured = {one.figure: one.measured for one in goals.verdicts(results)}
    size = measured["bytes on disk after 1,000 steps over the final state's compact JSON (undeclared)"]
    save = measured["median save at step 1,000 over langgraph-sqlite's (goal 1/2)"]
    return (
        f"Measured on Python {results['environment']['python']}: a conversation of 1,000 steps takes {size} its final "
        f"JSON on disk. A save at its end takes {save} as long as with LangGraph's SQLite saver "
        "([all figures](benchmarks/RESULTS.md))."
    )


def _steps(results: dict[str, Any]) -> list[str]:
    grown = [results["A"][length] for length in LENGTHS]
    sizes = " and ".join(number(round(one["final_json_bytes"] / 1e6, 1)) for one in grown)
    head = [f"1,000 · 3,000 steps ({sizes} MB of JSON)", "MB on disk", "save, ms", "restore, ms", "timeline of 20, ms"]
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


def _conditions(results: dict[str, Any]) -> str:
    crowd = {name: number(one["saves_per_second"]) for name, one in results["B"]["32"]["contenders"].items()}
    judged = [one.reached for one in goals.verdicts(results)]
    reached, missed = judged.count(True), judged.count(False)
    environment = results["environment"]
    return (
        "Medians of one interleaved run on SQLite with WAL and `synchronous=FULL` for all. holdfast verifies what it "
        "restores; langgraph-checkpoint-sqlite does not. With 32 writers, each in its own session: "
        f"{crowd['holdfast']} saves of 1 KB per second, langgraph-checkpoint-sqlite {crowd['langgraph']}, checkpnt "
        f"{crowd['checkpnt']}. Python {environment['python']}, commit {environment['commit'][:7]}. Of {len(judged)} "
        f"goals for this engine, {reached} are reached and {missed} are missed. Every figure, with versions, machine "
        "and command: [benchmarks/RESULTS.md](../benchmarks/RESULTS.md)."
    )
