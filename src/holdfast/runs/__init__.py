"""Runs: programs that resume, with steps, effects, tasks and sub-agents.

May import `checkpoint_store`, and all below it.
Start with `api.py`, then `engine.py`.
"""
