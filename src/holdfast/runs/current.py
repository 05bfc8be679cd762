"""The run of a worker or a replay that this code is part of: an adapter takes its turn within it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from holdfast.runs.api import Run, SyncRun

AnyRun: TypeAlias = "Run | SyncRun"
_current: ContextVar[AnyRun | None] = ContextVar("holdfast_run", default=None)


def enter(run: AnyRun) -> None:
    """Make this the run of the task or thread, and of what it starts."""
    _current.set(run)


@contextmanager
def enter_run(run: AnyRun) -> Iterator[None]:
    """Make this the run of the code within the block."""
    token = _current.set(run)
    try:
        yield
    finally:
        _current.reset(token)


def find(session_id: str) -> AnyRun | None:
    """Return the run that this code is part of, if it is a run of that session."""
    run = _current.get()
    return run if run is not None and run.session_id == session_id else None
