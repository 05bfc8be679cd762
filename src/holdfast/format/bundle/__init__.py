"""Bundles: whole trees of checkpoints as one portable stream of bytes.

May import `codec`, `model`, `errors`, other packages of `format`.
Start with `sections.py`.
"""
