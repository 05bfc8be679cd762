"""Commands: one module for each verb of the command line.

May import everything; click and rich as late as possible.
Start with `save.py`.
"""
