"""The base of all adapters: turns of a conversation, and the journal of model and tool calls.

May import `client`, and all below it; no adapter.
Start with `session.py`, which runs a turn, then `turn.py`, which records its calls.
"""
