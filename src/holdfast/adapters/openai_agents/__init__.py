"""OpenAI Agents SDK: agents that continue after a crash, a `Session`, and a snapshot of a sandbox.

May import `adapters.base`, `client`, and all below it, and the OpenAI Agents SDK; no other adapter.
Start with `resumable.py`, which runs a turn, then `journal.py`, which copies the agents.

`transcript` imports nothing of the SDK: it is loaded where the SDK is not installed.
"""
