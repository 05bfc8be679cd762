"""Sessions of a loop of one's own: their conversation, as chat messages.

May import `adapters.base`, `client`, and all below it; no other adapter.
Start with `transcript.py`.
"""
