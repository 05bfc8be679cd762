"""Output of commands: values as text, tables, graphs and JSON.

May import `adapters`, `client`, and all below them.
Start with `diff.py`.
"""
