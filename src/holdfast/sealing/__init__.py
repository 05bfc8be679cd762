"""Sealed stores: encryption of everything that a backend stores, and the keys for it.

May import `backends`, `format`, `model` and `errors`.
Start with `bridge.py`. `envelope.py` defines the bytes, `row_names.py` hides names, `store_keys.py`
has the keys of a store, and `key_ring.py` the keys that protect those. On a plain store, only
`plain_guard.py` runs.
"""
