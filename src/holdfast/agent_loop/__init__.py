"""A small agent loop on top of a client, and the models and tools for it.

May import `client`, and all below it.
Start with `api.py`, then `loop.py`.
"""
