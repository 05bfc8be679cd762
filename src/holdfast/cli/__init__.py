"""The command line: each command is a module of `commands/`.

May import everything.
Start with `main.py`.

Data goes to stdout, messages to stderr. Modules are imported late: `--help` or a timeline must not
wait for a library that only draws tables.
"""
