"""The web page and the HTTP API of a store: `app(client)` is an ASGI application.

May import everything but the command line.
Start with `application.py`.

`guard.py` decides who may ask. `pip install 'holdfast[ui]'` installs what it needs.
"""

from holdfast.web.access import Access
from holdfast.web.application import app

__all__ = ["Access", "app"]
