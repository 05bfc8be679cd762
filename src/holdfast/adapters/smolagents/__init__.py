"""smolagents: agents that continue after a crash.

May import `adapters.base`, `client`, and all below it, and the framework; no other adapter.
Start with `resumable.py`, then `journal.py`, which records the calls of a turn.
"""
