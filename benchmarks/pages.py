"""What the pages of results have in common: with what they were measured, and the goals."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from benchmarks.goals import Verdict
from benchmarks.tables import table

WORDS = {True: "reached", False: "**MISSED**", None: "not measured"}


def head(title: str, results: dict[str, Any], *, software: str, not_worth_quoting: bool) -> Iterator[str]:
    """`software`: what it ran on beside Python and Linux."""
    machine = results["environment"]
    yield f"# {title}"
    yield ""
    if not_worth_quoting:
        yield "**A quick run: it shows that the benchmark works. Its figures are not worth quoting.**"
        yield ""
    changed = " with uncommitted changes" if machine["uncommitted_changes"] else ""
    taken = f", in {results['seconds']:.0f} s" if "seconds" in results else ""
    yield f"Measured {machine['date']} at commit `{machine['commit']}`{changed}{taken}."
    yield (
        f"Python {machine['python']}, {software}, Linux {machine['kernel']}, {machine['cpus']} CPUs: {machine['cpu']}, "
        f"{machine['filesystem']}, load {machine['load_average_at_start'][0]} at the start."
    )
    yield "Versions: " + ", ".join(f"{name} {version}" for name, version in machine["packages"].items()) + "."
    yield ""
    for name, error in results.get("failed", {}).items():
        yield f"**Workload {name} failed: {error}**"
        yield ""


def goals(judged: Sequence[Verdict], command: Callable[[str], str]) -> Iterator[str]:
    """`command` says how the figures of a workload are measured again."""
    yield from table(
        ["figure", "goal", "measured", "", "reproduce"],
        [[one.figure, one.goal, one.measured, WORDS[one.reached], f"`{command(one.workload)}`"] for one in judged],
    )
    yield ""
    yield count(judged)
    yield ""


def count(judged: Sequence[Verdict]) -> str:
    missed = sum(one.reached is False for one in judged)
    reached = sum(one.reached is True for one in judged)
    return f"{reached} reached, {missed} missed, {len(judged) - reached - missed} not measured."


def as_text(judged: Iterable[Verdict]) -> str:
    """The goals for a terminal, at the end of a run."""
    judged = list(judged)
    lines = [
        f"{'reached' if one.reached else 'MISSED ':>8}  {one.measured:>14}  {one.goal:>15}  {one.figure}"
        for one in judged
        if one.reached is not None
    ]
    unmeasured = sum(one.reached is None for one in judged)
    return "\n".join([*lines, f"{unmeasured} goals were not measured in this run"] if unmeasured else lines)
