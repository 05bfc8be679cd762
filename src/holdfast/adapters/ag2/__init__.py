"""AG2: agents that continue after a crash, and their conversation as a checkpoint.

May import `adapters.base`, `client`, and all below it, and AG2; no other adapter.
Start with `resumable.py`, which runs a turn, then `agents.py`, which reaches the calls, and
`journal.py`, which records them.

`transcript` imports nothing of AG2: it is loaded where AG2 is not installed.
"""
