"""Objects as JSON: the fields that `--json` prints and the HTTP API answers with.

May import the public import paths, `client` and what is below it.
Start with `values.py`, which turns single values into JSON.
"""
