"""The progress that a run reports: a small row beside its checkpoints, written at most once a second."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from holdfast.backends.port import Commit, RowWrite
from holdfast.errors import UsageError
from holdfast.format.rows import head
from holdfast.format.rows.run import ProgressRow
from holdfast.operations import validate

if TYPE_CHECKING:
    from holdfast.runs.engine import RunEngine

WRITTEN_AFTER_US = 1_000_000


class RunProgressReport:
    """The last report of a run's life, and whether the store has it."""

    def __init__(self) -> None:
        self._row: ProgressRow | None = None
        self._written: ProgressRow | None = None

    async def report(self, core: RunEngine, done: Any, total: Any, note: Any) -> None:
        """Note the progress, and write it if the last write was a second ago. The end writes the rest."""
        text = validate.optional_name("note", note)
        row = ProgressRow(core.lease.token, _number("done", done), None if total is None else _number("total", total),
                          text, core.ctx.now_us())  # fmt: skip
        self._row, before = row, self._written
        if before is not None and row.at_us < before.at_us + WRITTEN_AFTER_US:
            return
        self._written = row
        session = head.session_key(core.options.session_id)
        await core.ctx.backend.commit(Commit(tree=core.tree, rows=[row.write(session, core.tree)]))
        if core.life is not None and core.life.notify is not None:
            core.life.notify(row.done, row.total, row.note)

    def list_unwritten(self, session: bytes, tree: bytes) -> Sequence[RowWrite]:
        """Return what the store has not got yet, for the commit that ends the run."""
        return () if self._row is None or self._row is self._written else (self._row.write(session, tree),)


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise UsageError(f"{name} is {value!r:.60}: it must be a number from 0 on")
    return value
