"""States as records, manifests and log segments: how a value is split, stored and assembled.

May import `backends.port`, `codec`, `model`, `errors`, `format.frame`.
Start with `record.py`, then `split.py` and `assemble.py`.
"""
