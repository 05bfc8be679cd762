"""LangGraph: a checkpointer, a store, and adapters for its dev server and snapshots.

May import `client`, and all below it, and LangGraph; no other adapter.
Start with `saver.py`.

`HoldfastSaver` is the checkpointer, `HoldfastStore` the long-term memory. `dev_checkpointer` and `dev_store`
are for `langgraph dev`, `LangGraphAdapter` is for snapshots by hand. They are imported when they are used:
`registration` is loaded where LangGraph is not installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.adapters.langgraph.dev_server import dev_checkpointer, dev_store
    from holdfast.adapters.langgraph.import_official import import_postgres, import_sqlite
    from holdfast.adapters.langgraph.manual_adapter import LangGraphAdapter
    from holdfast.adapters.langgraph.saver import HoldfastSaver
    from holdfast.adapters.langgraph.store import HoldfastStore

__all__ = [
    "HoldfastSaver",
    "HoldfastStore",
    "LangGraphAdapter",
    "dev_checkpointer",
    "dev_store",
    "import_postgres",
    "import_sqlite",
]

_MODULES = {
    "HoldfastSaver": "saver",
    "HoldfastStore": "store",
    "LangGraphAdapter": "manual_adapter",
    "dev_checkpointer": "dev_server",
    "dev_store": "dev_server",
    "import_postgres": "import_official",
    "import_sqlite": "import_official",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
