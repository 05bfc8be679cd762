"""The table of adapters: where each registers itself for operations."""

from __future__ import annotations

import functools
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.operations.adapter import Adapter

# By framework, a module that has `ADAPTER` and imports no framework. Named, not imported: adapters
# stand above the client.
MODULES = {"langgraph": "holdfast.adapters.langgraph.registration"}


@functools.cache
def load_adapters() -> tuple[Adapter, ...]:
    """Return the adapters, imported at the first call."""
    return tuple(import_module(module).ADAPTER for module in MODULES.values())
