"""Snapshots: from a scan to blobs in the store.

May import the rest of `workspace`, and all below it.
Start with `take.py`.
"""
