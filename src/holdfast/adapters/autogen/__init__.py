"""AutoGen: agents and teams that continue after a crash, and their state as a checkpoint.

May import `adapters.base`, `client`, and all below it, and AutoGen; no other adapter.
Start with `resumable.py`, which runs a turn, then `journal.py`, which records the calls of its agents.

`transcript` imports nothing of AutoGen: it is loaded where AutoGen is not installed.
"""
