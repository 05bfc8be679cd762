"""Haystack: agents and pipelines that continue after a crash, and a `snapshot_callback`.

May import `adapters.base`, `client`, and all below it, and Haystack; no other adapter.
Start with `resumable.py`, which runs a turn, then `journal.py`, which records the calls.

`transcript` imports nothing of Haystack: it is loaded where Haystack is not installed.
"""
