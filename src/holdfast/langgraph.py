"""The short name of `holdfast.adapters.langgraph`."""

try:
    from holdfast.adapters.langgraph import (
        HoldfastSaver,
        HoldfastStore,
        LangGraphAdapter,
        dev_checkpointer,
        dev_store,
        import_postgres,
        import_sqlite,
    )
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in {"langgraph", "langchain_core"}:
        raise
    raise ModuleNotFoundError(
        f"{error.name} is not installed, which the LangGraph checkpointer needs: pip install 'holdfast[langgraph]'",
        name=error.name,
    ) from error

__all__ = [
    "HoldfastSaver",
    "HoldfastStore",
    "LangGraphAdapter",
    "dev_checkpointer",
    "dev_store",
    "import_postgres",
    "import_sqlite",
]
