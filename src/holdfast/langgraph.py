"""The short name of `holdfast.adapters.langgraph`."""

from holdfast.adapters.langgraph import HoldfastSaver, LangGraphAdapter

__all__ = ["HoldfastSaver", "LangGraphAdapter"]
