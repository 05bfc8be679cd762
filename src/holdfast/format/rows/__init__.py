"""Rows, the small mutable facts of a store: heads, leases, pins, inboxes, ledger, approvals.

May import `backends.port`, `codec`, `model`, `errors`, other packages of `format`.
Start with `head.py`, the row of a session's head.
"""
