"""The adapter for the Claude Agent SDK: conversations of the CLI that continue after a crash.

May import `adapters.base`, `client`, and all below it, and the framework; no other adapter.
Start with `resumable.py`, then `transcript_mirror.py`, which stores the CLI's transcript.
"""
