"""Export and import of bundles.

May import the rest of `operations`, and all below it.
Start with `export.py`, then `import_.py`.
"""
