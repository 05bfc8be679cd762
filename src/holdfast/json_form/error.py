"""Errors as JSON: their kind and their fields."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from holdfast.errors import HoldfastError

# The fields of errors other than their message, named as in other output.
DETAILS = ("path", "paths", "holder", "expires_at", "approval_id", "by", "note", "checkpoint_id", "claim_id", "status")


def error_kind(error: HoldfastError) -> str:
    """Return the class of an error as a word: `lease_held` for LeaseHeldError."""
    name = type(error).__name__.removesuffix("Error")
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() or "error"


def error_details(error: HoldfastError) -> dict[str, Any]:
    return {
        name: _simplify_value(value) for name, value in vars(error).items() if name in DETAILS and value is not None
    }


def _simplify_value(value: Any) -> Any:
    from holdfast.json_form.values import format_time

    if isinstance(value, datetime):
        return format_time(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, list | tuple):
        return [_simplify_value(item) for item in value]
    return value if isinstance(value, str | int | float) else str(value)
