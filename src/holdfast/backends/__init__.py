"""Stores: one package or module for each kind of database, behind one port.

May import `model` and `errors`; never each other.
Start with `port.py`, the contract of all of them.
"""
