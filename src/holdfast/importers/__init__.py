"""Import of what other programs have saved.

May import `checkpoint_store`, and all below it.
Start with `checkpnt.py`; `import_target.py` is the store's side.
"""
