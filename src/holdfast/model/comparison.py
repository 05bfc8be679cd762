"""A comparison: two lines of execution side by side, from the checkpoint where they diverge."""

from __future__ import annotations

import html
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.diff import Diff, Put, Stat

STEPS_SHOWN = 12  # of longer lines, the first and the last steps
NAMES_SHOWN = 8
LINES_SHOWN = 20
TOTALS = ("execution_state", "metadata", "usage")  # where an agent loop adds up what its models used


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two lines: its head, and its checkpoints since they diverged.

    The checkpoints are given oldest first, without their states. `usage` adds up the numbers that
    their metadata recorded: every number under `usage`, and `cost`; and the growth of the totals
    that the state of an agent loop keeps. `since` leads from the point of divergence to the head,
    None if the lines share nothing: its effects and files are those of this line alone.
    """

    session_id: str
    head: Checkpoint
    steps: tuple[Checkpoint, ...]
    usage: Mapping[str, float]
    since: Diff | None = None

    @property
    def first(self) -> Checkpoint | None:
        """The first checkpoint that the other line does not have."""
        return self.steps[0] if self.steps else None

    @property
    def outcome(self) -> str | None:
        """The `outcome` in the metadata of its head, else the name of its last step."""
        recorded = self.head.metadata.get("outcome")
        return str(recorded) if recorded is not None else self.head.step_name


class PathStat(NamedTuple):
    """The number of differences at a path: on each side since they diverged, and between the heads."""

    path: str
    a: Stat
    b: Stat
    between: Stat


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two sessions side by side.

    `ancestor` is the newest common checkpoint, None if there is none. `diff` leads from the head of
    `a` to the head of `b`.
    """

    ancestor: Checkpoint | None
    a: Side
    b: Side
    diff: Diff

    def rows(self) -> list[tuple[str, str, str]]:
        """Return the rows of the comparison: the property, and its value on both sides."""
        counted = sorted({*self.a.usage, *self.b.usage})
        done = [
            ("effects", _effects(self.a), _effects(self.b)),
            ("files", _files(self.a), _files(self.b)),
        ]
        return [
            ("stands at", self.a.head.short_id, self.b.head.short_id),
            ("steps since", str(len(self.a.steps)), str(len(self.b.steps))),
            ("first step", _first(self.a), _first(self.b)),
            *((name, _number(self.a.usage.get(name)), _number(self.b.usage.get(name))) for name in counted),
            *(row for row in done if row[1] or row[2]),
            ("outcome", self.a.outcome or "", self.b.outcome or ""),
        ]

    def step_rows(self, names: Mapping[str, str] | None = None) -> list[tuple[str, str, str]]:
        """Return the steps since the lines diverged, pair by pair.

        `names` are other names for steps, by checkpoint id.
        """
        named = [[_step(step, names or {}) for step in side.steps] for side in (self.a, self.b)]
        return [
            (str(number), item, other)
            for number, (item, other) in enumerate(itertools.zip_longest(*named, fillvalue=""), 1)
        ]

    def name_rows(self) -> list[tuple[str, str, str]]:
        """Return how often each side has a step of each name, the most frequent first.

        The list is empty if every step has a different name.
        """
        of_a, of_b = (Counter(step.step_name for step in side.steps if step.step_name) for side in (self.a, self.b))
        both = of_a + of_b
        if max(both.values(), default=0) <= len((self.a, self.b)):
            return []
        shown = both.most_common(NAMES_SHOWN)
        return [(f"  {name}", str(of_a[name] or ""), str(of_b[name] or "")) for name, _ in shown]

    def stat(self, *, raw: bool = False) -> list[PathStat]:
        """Return the differences by path: on each side since they diverged, and between the heads.

        The paths with the most differences come first.
        """
        sides = [side.since.stat(raw=raw) if side.since is not None else {} for side in (self.a, self.b)]
        between = self.diff.stat(raw=raw)
        found = [
            PathStat(path, *(item.get(path, Stat()) for item in (*sides, between)))
            for path in dict.fromkeys((*between, *sides[0], *sides[1]))
        ]
        return sorted(found, key=lambda path_stat: (-path_stat.between.total, -path_stat.a.total - path_stat.b.total))

    def text(self) -> str:
        """Return the comparison as text: both sides, then the differences."""
        parted = f"diverged after {self.ancestor!r}" if self.ancestor else "no common ancestor"
        table = [("", self.a.session_id, self.b.session_id), *self.rows(), *condense(self.step_rows())]
        widths = [max(len(row[column]) for row in table) for column in range(3)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table
        ]
        difference = self.diff.text().split("\n")
        more = (
            [f"… and {len(difference) - LINES_SHOWN} more: `diff.text()` has all"]
            if len(difference) > LINES_SHOWN
            else []
        )
        return "\n".join(
            [parted, "", *lines, "", *(difference[:LINES_SHOWN] if difference != [""] else ["the same state"]), *more]
        )

    def _repr_html_(self) -> str:
        cells = [("", self.a.session_id, self.b.session_id), *self.rows()]
        rows = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in cells)
        return f"<table>{rows}</table>{self.diff._repr_html_()}"


def condense(rows: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Return the rows; of many, the first and the last, with the number of those left out."""
    if len(rows) <= STEPS_SHOWN:
        return rows
    half = STEPS_SHOWN // 2
    return [*rows[:half], ("…", f"{len(rows) - 2 * half} more", ""), *rows[-half:]]


def make_side(
    session_id: str, line: Sequence[Checkpoint], ancestor: Checkpoint | None, since: Diff | None = None
) -> Side:
    """Return the side of a line, given newest first, since it diverged at `ancestor`."""
    ids = [checkpoint.checkpoint_id for checkpoint in line]
    parted = ids.index(ancestor.checkpoint_id) if ancestor is not None else len(line)
    above = [*line[1:], None]
    steps = [item for item, parent in zip(line[:parted], above, strict=False) if not _repeats(item, parent)]
    return Side(
        session_id=session_id, head=line[0], steps=tuple(reversed(steps)), usage=_add_usage(steps, since), since=since
    )


def _repeats(checkpoint: Checkpoint, parent: Checkpoint | None) -> bool:
    """Return whether a checkpoint repeats its parent, as the first one of a fork or handoff does.

    Such a checkpoint is no step.
    """
    return (
        parent is not None
        and checkpoint.step_index == parent.step_index
        and dict(checkpoint.metadata) == dict(parent.metadata)
        and (checkpoint.step_name == "fork" or checkpoint.handoff_target is not None)
    )


def find_fork_point(a: Sequence[Checkpoint], b: Sequence[Checkpoint]) -> Checkpoint | None:
    """Return the newest checkpoint that both lines have."""
    of_a = {checkpoint.checkpoint_id for checkpoint in a}
    return next((checkpoint for checkpoint in b if checkpoint.checkpoint_id in of_a), None)


def _add_usage(steps: Iterable[Checkpoint], since: Diff | None) -> dict[str, float]:
    total: dict[str, float] = {}
    for checkpoint in steps:
        usage = checkpoint.metadata.get("usage")
        counted = dict(usage) if isinstance(usage, Mapping) else {}
        counted["cost"] = checkpoint.metadata.get("cost")
        for name, number in counted.items():
            if isinstance(name, str) and _is_number(number):
                total[name] = total.get(name, 0) + number
    for edit in since.edits if since is not None else ():
        if isinstance(edit, Put) and edit.path[: len(TOTALS)] == TOTALS:
            for keys, number in _numbers(edit.value, edit.path[len(TOTALS) :]):
                was = dict(_numbers(edit.was, edit.path[len(TOTALS) :])).get(keys, 0)
                name = ".".join(keys)
                total[name] = total.get(name, 0) + number - was
    return total


def _numbers(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yield the numbers in a value, each with the keys that lead to it."""
    if _is_number(value):
        yield tuple(map(str, path)), value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _numbers(item, (*path, key))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.6g}" if isinstance(value, float) else f"{value:,}"


def _first(of: Side) -> str:
    return "" if of.first is None else _step(of.first)


def _step(checkpoint: Checkpoint, names: Mapping[str, str] = MappingProxyType({})) -> str:
    name = names.get(checkpoint.checkpoint_id) or checkpoint.step_name or ""
    return f"{checkpoint.step_index} {name}".rstrip()


def _effects(of: Side) -> str:
    """Return the number of effects by tool, as text."""
    counted = Counter(effect.tool for effect in of.since.effects) if of.since is not None else {}
    return ", ".join(f"{count} × {tool}" for tool, count in counted.items())


def _files(of: Side) -> str:
    """Return how many files were added, deleted and changed, as text."""
    counted = Counter(change.status for change in (of.since.files or ())) if of.since is not None else {}
    return " ".join(f"{status}{count}" for status, count in sorted(counted.items()))
