"""Snapshots of directories as blobs: trees of files, and deltas between contents.

May import `codec`, `model`, `errors`, `format.frame`.
Start with `file_tree.py`.
"""
