"""Operations: the implementation of each verb of the client. No event loop, no thread.

May import `format`, `backends.port`, `codec`, `model`, `errors`.
Start with `save.py` and `restore.py`; `context.py` is the context that each one gets.
"""
