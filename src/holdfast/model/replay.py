"""A replay: a program run again on a fork, and the source of each step's result."""

from __future__ import annotations

import html
from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

from holdfast.model.diff import Edit, describe

MODES = ("recorded", "live", "mixed")
Source = Literal["recorded", "live", "blocked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedStep:
    """A step or effect of a run, or a node of a graph, as it was replayed.

    `source` says where its result came from: it was `recorded` (by the run that is replayed, or by
    the ledger), it was called `live`, or it was `blocked`, and has none. `same` says whether a live
    result equals the recorded one, None if there is none to compare it with; `edits` lead from
    that, `was`, to `result`. `note` gives the reason.
    """

    name: str
    kind: str  # step, effect or node
    place: str
    source: Source
    failed: bool = False
    result: Any = None
    was: Any = None
    same: bool | None = None
    edits: tuple[Edit, ...] = ()
    note: str | None = None

    def text(self) -> str:
        line = f"{self.source:<9}{self.kind} {self.name}"
        if self.failed:
            line += " (failed)"
        if self.same is not None and self.source == "live":
            line += ": the same result" if self.same else ": another result"
        return f"{line}: {self.note.partition('. ')[0]}" if self.note else line


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """The result of a replay.

    It was made in `session_id`, a fork of `source_session` at `from_id`, whose head is
    `checkpoint_id` now. The replayed session was not touched. `result` is the program's result;
    `error` is the exception that stopped it.
    """

    session_id: str
    source_session: str
    from_id: str
    checkpoint_id: str | None
    mode: str
    steps: tuple[ReplayedStep, ...]
    result: Any = None
    error: Exception | None = None

    @property
    def ok(self) -> bool:
        """Whether the program finished."""
        return self.error is None

    def __bool__(self) -> bool:
        return self.ok

    @property
    def differences(self) -> tuple[ReplayedStep, ...]:
        """The steps with another result than before."""
        return tuple(step for step in self.steps if step.same is False)

    def counts(self) -> dict[str, int]:
        """Return the number of recorded, live and blocked steps."""
        counted = Counter(step.source for step in self.steps)
        return {"recorded": counted["recorded"], "live": counted["live"], "blocked": counted["blocked"]}

    def text(self) -> str:
        """Return the replay as text: a line for each step, with its differences below it."""
        lines = [f"{self.source_session} from {self.from_id[-8:]}, {self.mode}, in session {self.session_id}"]
        for step in self.steps:
            lines.append(step.text())
            lines += [f"    {sign} {line}" for edit in step.edits for sign, line in describe(edit)]
        counted = ", ".join(f"{count} {source}" for source, count in self.counts().items() if count)
        ended = "ended" if self.error is None else f"stopped: {type(self.error).__name__}: {self.error}"
        return "\n".join([*lines, f"{counted or 'no steps'}; {ended}"])

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text())}</pre>"
