"""The figures before the fast paths were removed, beside those of now: `results/before/` has the older files.

They were measured at ancestors of b63b442 with what the table of fast paths in ARCHITECTURE.md no longer has.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.goals import Verdict
from benchmarks.tables import table

NOTICED = 1.1  # a figure that is worse by less may be noise

Verdicts = Callable[[dict[str, Any]], list[Verdict]]


def section(benchmarks: list[tuple[str, str, Verdicts]], directory: Path) -> Iterator[str]:
    """Yield a table of every judged figure that both have; those that became worse are marked."""
    compared = [
        one for one in benchmarks if all((directory / part / f"{one[1]}.json").exists() for part in ("before", "."))
    ]
    rows = [
        row
        for title, stem, verdicts in compared
        for row in _rows(title, *(_judge(directory / part / f"{stem}.json", verdicts) for part in ("before", ".")))
    ]
    if not rows:
        return
    yield "## Before and after"
    yield ""
    yield (
        "Before: commit b63b442, with fast paths that read CPython's memory, wrote into SQLite's WAL, encoded records "
        "a second time, restored with several processes and went below the drivers. After: without them. Marked is "
        f"what became worse by more than {100 * (NOTICED - 1):.0f} %."
    )
    yield ""
    yield (
        f"Before ran on {_machines(compared, directory / 'before')}, after on {_machines(compared, directory)}. So a "
        "part of a change may be Python's or the machine's."
    )
    yield ""
    yield from table(["benchmark", "figure", "goal", "before", "after", ""], rows)
    yield ""


def _machines(benchmarks: list[tuple[str, str, Verdicts]], directory: Path) -> str:
    used = [json.loads((directory / f"{stem}.json").read_text("utf-8"))["environment"] for _, stem, _ in benchmarks]
    pythons, processors = (" and ".join(sorted({one[what] for one in used})) for what in ("python", "cpu"))
    return f"Python {pythons} ({processors})"


def _judge(file: Path, verdicts: Verdicts) -> dict[str, Verdict]:
    return {one.figure: one for one in verdicts(json.loads(file.read_text("utf-8")))}


def _rows(title: str, before: dict[str, Verdict], after: dict[str, Verdict]) -> Iterator[list[str]]:
    for figure, now in after.items():
        then = before.get(figure)
        if then is None or then.reached is None or now.reached is None:
            continue
        yield [title, figure, now.goal, then.measured, now.measured, "slower" if _is_worse(then, now) else ""]


def _is_worse(then: Verdict, now: Verdict) -> bool:
    old, new = (float(one.measured.split()[0]) for one in (then, now))
    return new * NOTICED < old if now.goal.startswith("≥") else new > old * NOTICED
