"""An adapter as operations see it: the rows that it keeps, and how its checkpoints are shown."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from holdfast.format.rows.adapter import AdapterRows
from holdfast.format.rows.portable import PortableRows
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.state_view import StateView
from holdfast.operations.context import StoreContext


class Adapter(NamedTuple):
    """The registration of an adapter.

    Its module imports no framework: gc and export work where none is installed.
    """

    name: str
    rows: AdapterRows
    view: StateView
    apply_writes: Callable[[StoreContext, Checkpoint], Awaitable[Checkpoint]] | None = None
    """Adds to a checkpoint what was written since, apart from it."""


def portable_rows(ctx: StoreContext) -> PortableRows:
    """Return the rows that export and import carry, with those of adapters."""
    return PortableRows(adapter.rows for adapter in ctx.load_adapters())
