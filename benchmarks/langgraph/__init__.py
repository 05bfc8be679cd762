"""HoldfastSaver beside LangGraph's official savers: real messages, a real compiled graph, equal durability."""
