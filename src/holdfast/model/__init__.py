"""Values and pure rules: checkpoints, diffs, ids, policies, reports. No I/O, no clock.

May import `errors` only.
Start with `checkpoint.py`, the value that everything else is about.
"""
