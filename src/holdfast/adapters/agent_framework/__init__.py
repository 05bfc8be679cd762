"""Microsoft agent-framework: agents and workflows that continue after a crash, and its own seams.

May import `adapters.base`, `client`, and all below it, and agent-framework; no other adapter.
Start with `resumable.py` and `workflow.py`, which run a turn, then `middleware.py`, which records it.

`transcript` imports nothing of agent-framework: it is loaded where that is not installed.
"""
