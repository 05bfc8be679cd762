"""`langgraph dev` on a holdfast store: its configuration and its server.

May import everything.
Start with `server.py`.
"""
