"""Digests of plain data that are the same in every process: what calls are known by."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def digest(value: Any) -> str:
    """Return a digest of plain data that is the same in every process."""
    text = json.dumps(value, sort_keys=True, default=_stable, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _stable(value: Any) -> Any:
    """Return a value that JSON lacks as one that it has, without addresses of objects."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", warnings=False)
    if isinstance(value, bytes):
        return hashlib.sha256(value).hexdigest()
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    if isinstance(value, type) or callable(value):
        return getattr(value, "__qualname__", type(value).__qualname__)
    return f"{type(value).__qualname__}:{value}"
