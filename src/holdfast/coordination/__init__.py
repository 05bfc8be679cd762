"""Leases, claims, event streams and process identity.

May import `operations`, and all below it; threads and asyncio.
Start with `lease.py`.
"""
