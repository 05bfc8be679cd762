"""CrewAI: crews, flows and agents that continue after a crash, and a `FlowPersistence`.

May import `adapters.base`, `client`, and all below it, and CrewAI; no other adapter.
Start with `resumable.py`, which runs a turn, then `journal.py`, which records the calls.

`transcript` imports nothing of CrewAI: it is loaded where CrewAI is not installed.
"""
