"""The routes of the HTTP API by subject; each module has them in `ROUTES`.

May import everything but the command line.
Start with `sessions.py`.
"""
