"""Exact, data-only encoding of Python values to bytes and back.

May import `model` and `errors`.
Start with `codec.py`, which has `encode` and `decode`.
"""
