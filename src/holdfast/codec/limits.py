"""Limits on the size of one value."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.errors import UsageError

# Each level takes a few frames of Python's stack; a caller has a thousand by default.
_MAX_DEPTH = 250


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one encoded value, enforced when encoding and when decoding.

    With them a cycle, a runaway structure or damaged bytes end in a clear error, not in a process
    that is killed for its memory. `max_bytes` bounds the encoding, and also the sum of all nested
    payloads in it (a payload is copied once for each level that it is nested in). For
    `encode_joined` and `decode_joined`, they bound each element.
    """

    max_bytes: int = 1 << 30
    max_depth: int = 200
    max_items: int = 10_000_000

    def __post_init__(self) -> None:
        if not 0 < self.max_depth <= _MAX_DEPTH:
            raise UsageError(f"max_depth is from 1 to {_MAX_DEPTH}, not {self.max_depth}")
        if self.max_bytes < 1 or self.max_items < 1:
            raise UsageError("max_bytes and max_items are at least 1")
