"""Bisection: the first bad one of a line of checkpoints, in as few looks as possible. Pure: who looks says what was found."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.model.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class Look:
    """A checkpoint that was looked at, and whether it was good."""

    checkpoint: Checkpoint
    is_good: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Bisection:
    """What was found: `first_bad`, None if even the newest is good, and `last_good` before it, None if even the oldest is
    bad. `looks` in the order they were made, out of `of_all`. Checkpoints are given without their states.

    It holds if a line that has gone bad stays so; the looks show what it rests on.
    """

    session_id: str
    first_bad: Checkpoint | None
    last_good: Checkpoint | None
    looks: tuple[Look, ...]
    of_all: int

    def text(self) -> str:
        """The outcome for people."""
        looked = f"{len(self.looks)} of {self.of_all} checkpoints looked at"
        if self.first_bad is None:
            return f"{self.session_id}: all is good, the newest included ({looked})"
        before = f"after {_named(self.last_good)}" if self.last_good else "from its first checkpoint on"
        return f"{self.session_id}: went bad at {_named(self.first_bad)}, {before} ({looked})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{'good' if look.is_good else 'bad'}</td><td>{html.escape(_named(look.checkpoint))}</td></tr>"
            for look in self.looks
        )
        return f"<div>{html.escape(self.text())}</div><table>{rows}</table>"


def _named(checkpoint: Checkpoint) -> str:
    name = f" {checkpoint.step_name}" if checkpoint.step_name else ""
    return f"step {checkpoint.step_index}{name} ({checkpoint.short_id})"


class Search:
    """Halves a line, given oldest first, until the first bad one is known. The newest is looked at first: if it is good,
    there is nothing to find. `next` says which one to look at, None when it is known; `tell` what was found there."""

    def __init__(self, line: Sequence[Checkpoint]) -> None:
        self._line = line
        self._good = -1  # the last known to be good
        self._bad = len(line)  # the first known to be bad
        self.looks: list[Look] = []

    def next(self) -> Checkpoint | None:
        return None if self._is_over() else self._line[self._place()]

    def tell(self, *, is_good: bool) -> None:
        place = self._place()
        self.looks.append(Look(self._line[place], is_good))
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
