"""The SQLite backend: one database file, safe with many processes. The default store.

May import `backends.bridge`, modules of `backends`, `model`, `errors`; no other kind of store.
Start with `backend.py`.
"""

from holdfast.backends.sqlite.backend import SqliteBackend, open_url

__all__ = ["SqliteBackend", "open_url"]
