"""A comparison: two lines of execution that part somewhere, side by side."""

from __future__ import annotations

import html
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.diff import Diff, Put

STEPS_SHOWN = 30
TOTALS = ("execution_state", "metadata", "usage")  # where an agent loop adds up what its models used


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two lines: what it stands at, and its checkpoints since they parted, oldest first, without their states.

    `usage` adds up what their metadata recorded: every number under `usage`, and `cost`; and what was added since to the
    totals that the state of an agent loop keeps. `since` leads from where they
    parted to what it stands at, None if they share nothing: its effects and files are those of this line alone.
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
        """What the metadata of its head says under `outcome`, else the name of its last step."""
        said = self.head.metadata.get("outcome")
        return str(said) if said is not None else self.head.step_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two sessions side by side. `ancestor` is the newest checkpoint of both, None if they share none; `diff` leads from
    what `a` stands at to what `b` stands at."""

    ancestor: Checkpoint | None
    a: Side
    b: Side
    diff: Diff

    def rows(self) -> list[tuple[str, str, str]]:
        """What is compared, and how it is on both sides."""
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

    def step_rows(self) -> list[tuple[str, str, str]]:
        """Their steps since they parted, side by side: the first of both, the second of both, and so on."""
        named = [[_step(step) for step in side.steps] for side in (self.a, self.b)]
        return [
            (str(number), one, other)
            for number, (one, other) in enumerate(itertools.zip_longest(*named, fillvalue=""), 1)
        ]

    def text(self) -> str:
        """Side by side for people, then what differs."""
        parted = f"parted after {self.ancestor!r}" if self.ancestor else "no checkpoint in common"
        steps = self.step_rows()
        more = [("", "…", "…")] if len(steps) > STEPS_SHOWN else []
        table = [("", self.a.session_id, self.b.session_id), *self.rows(), *steps[:STEPS_SHOWN], *more]
        widths = [max(len(row[column]) for row in table) for column in range(3)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table
        ]
        return "\n".join([parted, "", *lines, "", self.diff.text() or "the same state"])

    def _repr_html_(self) -> str:
        cells = [("", self.a.session_id, self.b.session_id), *self.rows()]
        rows = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in cells)
        return f"<table>{rows}</table>{self.diff._repr_html_()}"


def side(session_id: str, line: Sequence[Checkpoint], ancestor: Checkpoint | None, since: Diff | None = None) -> Side:
    """A line, given newest first, since it parted from another at `ancestor`."""
    ids = [checkpoint.checkpoint_id for checkpoint in line]
    parted = ids.index(ancestor.checkpoint_id) if ancestor is not None else len(line)
    above = [*line[1:], None]
    steps = [one for one, parent in zip(line[:parted], above, strict=False) if not _repeats(one, parent)]
    return Side(
        session_id=session_id, head=line[0], steps=tuple(reversed(steps)), usage=_added(steps, since), since=since
    )


def _repeats(checkpoint: Checkpoint, parent: Checkpoint | None) -> bool:
    """A fork and a handoff begin with a checkpoint that says again what its parent said: that is no step."""
    return (
        parent is not None
        and checkpoint.step_index == parent.step_index
        and dict(checkpoint.metadata) == dict(parent.metadata)
        and (checkpoint.step_name == "fork" or checkpoint.handoff_target is not None)
    )


def parted_at(a: Sequence[Checkpoint], b: Sequence[Checkpoint]) -> Checkpoint | None:
    """The newest checkpoint of both lines."""
    of_a = {checkpoint.checkpoint_id for checkpoint in a}
    return next((checkpoint for checkpoint in b if checkpoint.checkpoint_id in of_a), None)


def _added(steps: Iterable[Checkpoint], since: Diff | None) -> dict[str, float]:
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
    """The numbers in a value, each with the keys that lead to it."""
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


def _step(checkpoint: Checkpoint) -> str:
    return f"{checkpoint.step_index} {checkpoint.step_name or ''}".rstrip()


def _effects(of: Side) -> str:
    """How many of each tool."""
    counted = Counter(effect.tool for effect in of.since.effects) if of.since is not None else {}
    return ", ".join(f"{count} × {tool}" for tool, count in counted.items())


def _files(of: Side) -> str:
    """How many were added, deleted and changed."""
    counted = Counter(change.status for change in (of.since.files or ())) if of.since is not None else {}
    return " ".join(f"{status}{count}" for status, count in sorted(counted.items()))
