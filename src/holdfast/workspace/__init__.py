"""Workspaces: snapshots of an agent's directory, and their restore, fork and rollback.

May import `checkpoint_store`, and all below it.
Start with `api.py`.
"""
