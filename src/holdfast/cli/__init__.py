"""The command line. `main.py` is the way in; each command is a module `cmd_<verb>.py`.

stdout carries data, stderr carries words. What is imported is imported late: asking for help or for a timeline must
not wait for a library that only draws tables.
"""
