"""The repr of a stored value, whatever it holds: Python writes no number of more than 4,300 digits."""

from __future__ import annotations

from typing import Any


def safe_repr(value: Any) -> str:
    """Return `repr(value)`; a short description if Python refuses to write it."""
    try:
        return repr(value)
    except ValueError:
        if isinstance(value, int):
            return f"<int of {value.bit_length()} bits>"
        return f"<{type(value).__name__} that holds a huge number>"
