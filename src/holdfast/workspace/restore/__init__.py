"""Restores: from a snapshot to files in a directory, all or nothing.

May import the rest of `workspace`, and all below it.
Start with `engine.py`.
"""
