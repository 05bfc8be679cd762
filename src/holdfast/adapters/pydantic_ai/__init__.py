"""Pydantic AI: agents that continue after a crash, a durability capability, and a conversation store.

May import `adapters.base`, `client`, and all below it, and Pydantic AI; no other adapter.
Start with `resumable.py`, which runs a turn, then `durability.py`, which records its calls.

`transcript` imports nothing of Pydantic AI: it is loaded where that is not installed.
"""
