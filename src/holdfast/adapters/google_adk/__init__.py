"""The adapter for Google ADK: agents and apps whose turns continue after a crash.

May import `adapters.base`, `client`, and all below it; no other adapter.
Start with `resumable.py`, then `journal.py`, which records model and tool calls.
"""
