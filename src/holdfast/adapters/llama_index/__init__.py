"""LlamaIndex Workflows: workflows that continue after a crash, and their contexts as checkpoints.

May import `adapters.base`, `client`, and all below it, and the framework; no other adapter.
Start with `resumable.py`, which runs a turn, then `runtime.py`, which the framework calls at each
tick, and `recorder.py`, which saves the run.

`transcript` imports nothing of the framework: it is loaded where that is not installed.
"""
