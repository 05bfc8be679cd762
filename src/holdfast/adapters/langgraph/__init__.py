"""LangGraph: `HoldfastSaver`, a checkpointer, `dev_checkpointer`, the one of `langgraph dev`, and `LangGraphAdapter`, for
snapshots by hand."""

from holdfast.adapters.langgraph.dev_server import dev_checkpointer
from holdfast.adapters.langgraph.importing import import_postgres, import_sqlite
from holdfast.adapters.langgraph.saver import HoldfastSaver
from holdfast.adapters.langgraph.snapshots import LangGraphAdapter

__all__ = ["HoldfastSaver", "LangGraphAdapter", "dev_checkpointer", "import_postgres", "import_sqlite"]
