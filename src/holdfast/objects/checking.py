"""Blobs of snapshots, checked against their hashes. It imports little: helper processes check, too."""

from __future__ import annotations

import hashlib

from holdfast.errors import CorruptError
from holdfast.objects import frame


def checked(hash_: bytes, framed: bytes, inflate: frame.Inflater) -> bytes:
    """The content of a blob, which is the one of this hash."""
    content = frame.content(framed, inflate)
    if hashlib.sha256(content).digest() != hash_:
        raise CorruptError(f"the blob {hash_.hex()[:16]}… of a snapshot is damaged: run `verify`")
    return content
