"""Bisection: the first bad checkpoint of a line, in O(log n) tests. Pure: the caller does the tests."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.model.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class BisectStep:
    """A checkpoint that was tested, and whether it was good."""

    checkpoint: Checkpoint
    is_good: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Bisection:
    """The result of a bisection.

    `first_bad` is None if even the newest is good; `last_good` before it is None if even the oldest
    is bad. `looks` are the tests in their order, out of `of_all`. Checkpoints are given without
    their states.

    The result holds if a line that has turned bad stays bad; the tests show its basis.
    """

    session_id: str
    first_bad: Checkpoint | None
    last_good: Checkpoint | None
    looks: tuple[BisectStep, ...]
    of_all: int

    def text(self) -> str:
        """Return the result as text."""
        looked = f"{len(self.looks)} of {self.of_all} checkpoints tested"
        if self.first_bad is None:
            return f"{self.session_id}: all is good, the newest included ({looked})"
        before = f"after {_name_checkpoint(self.last_good)}" if self.last_good else "from its first checkpoint on"
        return f"{self.session_id}: went bad at {_name_checkpoint(self.first_bad)}, {before} ({looked})"

    def _repr_html_(self) -> str:
        names = [(html.escape(_name_checkpoint(step.checkpoint)), step.is_good) for step in self.looks]
        rows = "".join(f"<tr><td>{'good' if is_good else 'bad'}</td><td>{name}</td></tr>" for name, is_good in names)
        return f"<div>{html.escape(self.text())}</div><table>{rows}</table>"


def _name_checkpoint(checkpoint: Checkpoint) -> str:
    name = f" {checkpoint.step_name}" if checkpoint.step_name else ""
    return f"step {checkpoint.step_index}{name} ({checkpoint.short_id})"


class Search:
    """A binary search for the first bad checkpoint of a line, given oldest first.

    The newest is tested first: if it is good, there is nothing to find. `next` returns the one to
    test, None at the end; `record` takes the outcome.
    """

    def __init__(self, line: Sequence[Checkpoint]) -> None:
        self._line = line
        self._good = -1  # the last known to be good
        self._bad = len(line)  # the first known to be bad
        self.looks: list[BisectStep] = []

    def next(self) -> Checkpoint | None:
        return None if self._is_over() else self._line[self._place()]

    def record(self, *, is_good: bool) -> None:
        place = self._place()
        self.looks.append(BisectStep(self._line[place], is_good))
        if is_good:
            self._good = place
        else:
            self._bad = place

    def found(self, session_id: str) -> Bisection:
        return Bisection(
            session_id=session_id,
            first_bad=self._line[self._bad] if self._bad < len(self._line) else None,
            last_good=self._line[self._good] if self._good >= 0 else None,
            looks=tuple(self.looks),
            of_all=len(self._line),
        )

    def _is_over(self) -> bool:
        return self._good + 1 >= self._bad

    def _place(self) -> int:
        return len(self._line) - 1 if self._bad == len(self._line) else (self._good + self._bad) // 2
