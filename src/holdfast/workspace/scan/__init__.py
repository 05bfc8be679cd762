"""Scans of a directory: the changes since the last snapshot.

May import the rest of `workspace`, and all below it.
Start with `walk.py`.
"""
