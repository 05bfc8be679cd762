"""Bridges: how awaiting and blocking callers reach awaiting and blocking backends.

May import modules of `backends`, and `errors`.
Start with `base.py`; `step.py` runs a coroutine without an event loop.
"""
