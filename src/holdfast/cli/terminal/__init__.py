"""The terminal: colours, pager, progress, and text that can't harm it.

May import the standard library, click and rich.
Start with `sanitize.py`.
"""
