"""How large one value may be."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one encoded value, held when encoding and when decoding.

    They exist so that a cycle, a runaway structure or damaged bytes end in a clear error and not in a process that
    was killed for its memory. `max_bytes` bounds the encoding, and also the sum of all nested payloads in it (a
    payload is copied once for each level that it is nested in). Of `encode_joined` and `decode_joined`, they bound
    each element.
    """

    max_bytes: int = 1 << 30
    max_depth: int = 200
    max_items: int = 10_000_000
