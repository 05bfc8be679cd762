"""Backends by URL: our own schemes, then those of installed packages.

A package offers one by an entry point in the group `holdfast.backends`, named by the scheme. It
leads to a callable `open_url(url, **options)` that returns a `BlockingBackend` or an
`AsyncBackend`.
"""

from __future__ import annotations

import importlib
from typing import Any

from holdfast.backends.port import AnyBackend
from holdfast.errors import UsageError

ENTRY_POINTS = "holdfast.backends"
OWN = {
    "memory": "holdfast.backends.memory",
    "file": "holdfast.backends.files",
    "sqlite": "holdfast.backends.sqlite",
    "postgresql": "holdfast.backends.postgres",
    "postgres": "holdfast.backends.postgres",
    "redis": "holdfast.backends.redis",
    "rediss": "holdfast.backends.redis",
    "redis+cluster": "holdfast.backends.redis",
    "rediss+cluster": "holdfast.backends.redis",
}


def open_backend(url: str, **options: Any) -> AnyBackend:
    """Return the store at a URL; options are the backend's own."""
    if not isinstance(url, str):
        raise UsageError(f"a store is named by its URL, such as 'sqlite:///store.db', not by a {type(url).__name__}")
    scheme, separator, _ = url.partition(":")
    if not separator:
        raise UsageError(f"{url!r} is not a store URL: it has no scheme. For a SQLite file write 'sqlite:///{url}'")
    if scheme in OWN:
        opener = importlib.import_module(OWN[scheme]).open_url
    else:
        from importlib.metadata import entry_points

        found = entry_points(group=ENTRY_POINTS, name=scheme)
        if not found:
            known = sorted({*OWN, *(point.name for point in entry_points(group=ENTRY_POINTS))})
            raise UsageError(f"no backend for {scheme!r} in {url!r}: known are {', '.join(known)}")
        opener = next(iter(found)).load()
    try:
        backend: AnyBackend = opener(url, **options)
    except TypeError as error:
        raise UsageError(f"{url!r} can't be opened with the options {sorted(options)}: {error}") from error
    return backend
