"""A prefix for each test, so that tests that share a server don't see each other."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

PREFIX = f"test:{os.getpid()}:"
_made: set[str] = set()


def prefix_name(where: Path) -> str:
    """The prefix of whoever has that directory to itself; its keys are deleted by `delete_prefixes`."""
    name = PREFIX + hashlib.sha256(bytes(where)).hexdigest()[:24]
    _made.add(name)
    return name


def delete_prefixes(url: str) -> None:
    """Deletes the keys of all that were named since the last time."""
    import redis

    with redis.Redis.from_url(url) as client:
        for name in list(_made):  # one whose keys can't be deleted now is tried again after the next test
            keys = list(client.scan_iter(match=f"{{{name}:*", count=10_000))
            if keys:
                client.unlink(*keys)
            _made.discard(name)
