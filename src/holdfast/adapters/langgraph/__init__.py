"""LangGraph: `HoldfastSaver`, a checkpointer, and `LangGraphAdapter`, for snapshots by hand."""

from holdfast.adapters.langgraph.saver import HoldfastSaver
from holdfast.adapters.langgraph.snapshots import LangGraphAdapter

__all__ = ["HoldfastSaver", "LangGraphAdapter"]
