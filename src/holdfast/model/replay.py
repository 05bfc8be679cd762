"""A replay: a program run once more from a checkpoint, on a fork, and what each of its steps came from."""

from __future__ import annotations

import html
from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

from holdfast.model.diff import Edit, described

MODES = ("recorded", "live", "mixed")
Source = Literal["recorded", "live", "blocked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedStep:
    """A step or effect of a run, or a node of a graph, as it was replayed.

    `source` says where its result came from: it was `recorded` (by the run that is replayed, or by the ledger), it was called
    `live`, or it was `blocked`, and has none. `same` says whether a live result equals the recorded one, None if there
    is none to compare it with; `edits` lead from that, `was`, to `result`. `note` says why it is so.
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
        told = f"{self.source:<9}{self.kind} {self.name}"
        if self.failed:
            told += " (failed)"
        if self.same is not None and self.source == "live":
            told += ": the same result" if self.same else ": another result"
        return f"{told}: {self.note.partition('. ')[0]}" if self.note else told


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayReport:
    """What came of a replay. It was made in `session_id`, a fork of `source_session` at `from_id`, which stands at
    `checkpoint_id` now; the replayed session was not touched. `result` is what the program returned, `error` what it raised:
    then it stopped there."""

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
        """Whether the program came to its end."""
        return self.error is None

    def __bool__(self) -> bool:
        return self.ok

    @property
    def differences(self) -> tuple[ReplayedStep, ...]:
        """The steps that came to another result than before."""
        return tuple(step for step in self.steps if step.same is False)

    def counts(self) -> dict[str, int]:
        """How many steps were recorded, live and blocked."""
        counted = Counter(step.source for step in self.steps)
        return {"recorded": counted["recorded"], "live": counted["live"], "blocked": counted["blocked"]}

    def text(self) -> str:
        """The replay for people: a line for each step, with what differs below it."""
        lines = [f"{self.source_session} from {self.from_id[-8:]}, {self.mode}, in session {self.session_id}"]
        for step in self.steps:
            lines.append(step.text())
            lines += [f"    {sign} {line}" for edit in step.edits for sign, line in described(edit)]
        counted = ", ".join(f"{count} {source}" for source, count in self.counts().items() if count)
        ended = "ended" if self.error is None else f"stopped: {type(self.error).__name__}: {self.error}"
        return "\n".join([*lines, f"{counted or 'no steps'}; {ended}"])

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text())}</pre>"
