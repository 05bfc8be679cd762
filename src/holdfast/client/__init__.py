"""`Client` and `SyncClient`, the library's surface: they check arguments and call operations.

May import everything but adapters, agent loops and the command line.
Start with `client.py`; tools/make_sync.py generates `sync.py` from it.
"""
