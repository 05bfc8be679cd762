"""Strands: agents, graphs and swarms that continue after a crash, and its own seam.

May import `adapters.base`, `client`, and all below it, and Strands; no other adapter.
Start with `resumable.py`, which runs a turn, then `journal.py`, which records its calls, and
`team.py`, which finds the agents and keeps their conversations.

`transcript` imports nothing of Strands: it is loaded where that is not installed.
"""
