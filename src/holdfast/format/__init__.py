"""The stored format: states, rows, files and bundles as bytes. docs/format.md describes it.

May import `backends.port`, `codec`, `model`, `errors`.
Start with `state/record.py`, the record of a checkpoint.
"""
