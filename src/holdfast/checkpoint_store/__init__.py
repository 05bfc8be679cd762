"""The five-method `CheckpointStore` of agent loops: over a client, and over plain JSON files.

May import `coordination`, and all below it.
Start with `protocol.py`.
"""
