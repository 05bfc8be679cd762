"""Options of a run: when to save, how often to retry; and the traces of its sub-agents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from holdfast.errors import UsageError

JOURNAL_KEY = "holdfast.run"
"""The key of the agent's context under which a run keeps its journal."""


_UNSAID: Any = ...
LONGEST_WAIT = 1e9  # seconds: thirty years


@dataclass(frozen=True, slots=True, kw_only=True)
class Autosave:
    """The schedule on which a run saves by itself.

    It saves after every `steps` steps, and after a step if `seconds` have passed since the last
    save; with `only_changed` not if nothing is new. `Autosave(seconds=10)` goes by time alone,
    `Autosave()` saves after each step. The result of an effect is always saved at once.
    """

    steps: int | None = _UNSAID
    seconds: float | None = None
    only_changed: bool = False

    def __post_init__(self) -> None:
        if self.steps is _UNSAID:
            object.__setattr__(self, "steps", 1 if self.seconds is None else None)
        if self.steps is not None and (
            not isinstance(self.steps, int) or isinstance(self.steps, bool) or self.steps < 1
        ):
            raise UsageError(f"autosave: steps is {self.steps!r}: it must be a whole number from 1 on, or None")
        if self.seconds is not None and not self.seconds > 0:
            raise UsageError(f"autosave: seconds is {self.seconds!r}: it must be a positive number of seconds, or None")

    def is_due(self, steps: int, seconds: float) -> bool:
        """Return whether to save now: so many steps, and so many seconds, after the last time."""
        return (self.steps is not None and steps >= self.steps) or (
            self.seconds is not None and seconds >= self.seconds
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """The number of attempts of a step, over all restarts of the program, and the wait before each.

    The wait is `seconds`, and `factor` times as long each time, at most `most_seconds`. Only
    exceptions in `on` lead to a retry. A restarted program with no attempts left tries once: the
    cause may have been repaired.
    """

    attempts: int = 3
    seconds: float = 1.0
    factor: float = 2.0
    most_seconds: float = 60.0
    on: tuple[type[Exception], ...] = (Exception,)

    def __post_init__(self) -> None:
        if not (self.attempts >= 1 and self.seconds >= 0 and self.factor >= 1 and self.most_seconds >= 0):  # nor NaN
            raise UsageError(
                f"{self!r}: attempts must be at least 1, seconds and most_seconds at least 0, factor at least 1"
            )

    def goes_on(self, attempts: int, error: Exception) -> bool:
        return attempts < self.attempts and isinstance(error, self.on)

    def wait(self, attempts: int) -> float:
        """Return how long to wait after so many failures."""
        if not self.seconds:
            return 0.0
        longest = max(self.most_seconds / self.seconds, 1.0)
        growth = 1.0
        for _ in range(attempts - 1):  # never beyond the limit: a power of a large number overflows
            growth = min(growth * self.factor, longest)
        return min(self.seconds * growth, self.most_seconds, LONGEST_WAIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentCall:
    """A call of a sub-agent: a step or an effect of it."""

    name: str
    key: str
    started_at: datetime
    ended_at: datetime
    failed: bool = False
    error: str | None = None
    effect_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentTrace:
    """The trace of a sub-agent, kept in the checkpoints of the run that started it."""

    subagent_id: str
    subagent_type: str
    prompt: Any
    started_at: datetime
    ended_at: datetime
    success: bool
    parent_tool_call_id: str | None = None
    result: Any = None
    error: str | None = None
    tool_calls: tuple[SubagentCall, ...] = ()
    usage: Mapping[str, Any] = field(default_factory=dict)
