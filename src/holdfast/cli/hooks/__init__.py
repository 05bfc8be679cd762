"""Hooks that coding agents call.

May import `client`, and all below it.
Start with `port.py`, then `claude_code.py`.
"""
