"""How a checkpoint names its snapshot. A module of its own, since every save asks, and few have a workspace."""

from __future__ import annotations

SCHEME = "holdfast:"


def is_ours(reference: str | None) -> bool:
    """Whether a checkpoint's `workspace` names a snapshot of ours, and not one that a sandbox service took."""
    if reference is None or not reference.startswith(SCHEME):
        return False
    digits = reference.removeprefix(SCHEME)
    return len(digits) == 64 and all(digit in "0123456789abcdef" for digit in digits)


def reference_to(object_hash: bytes) -> str:
    return SCHEME + object_hash.hex()
