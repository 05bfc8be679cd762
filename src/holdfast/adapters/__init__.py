"""Adapters: agent frameworks that store their checkpoints in holdfast. One package for each.

May import `client`, and all below it; never each other.
Start with `langgraph/saver.py`.
"""
