"""Durations, sizes and JSON values on the command line."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import click

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_BYTES = {
    "": 1, "b": 1, "kb": 1000, "mb": 1000**2, "gb": 1000**3, "tb": 1000**4,
    "kib": 1024, "mib": 1024**2, "gib": 1024**3, "tib": 1024**4,
}  # fmt: skip
_QUANTITY = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*([a-z]*)", re.ASCII)


def _read(text: str, units: dict[str, int]) -> float | None:
    found = _QUANTITY.fullmatch(text.strip().lower())
    factor = units.get(found[2]) if found else None
    return None if found is None or factor is None else float(found[1]) * factor


def parse_duration(text: str) -> timedelta:
    seconds = _read(text, _SECONDS)
    if seconds is None or seconds > timedelta.max.total_seconds() / 2:
        raise click.BadParameter(f"{text!r:.40} is no duration: write 45s, 90m, 12h, 30d or 2w")
    return timedelta(seconds=seconds)


def parse_size(text: str) -> int:
    count = _read(text, _BYTES)
    if count is None:
        raise click.BadParameter(f"{text!r:.40} is no size: write 200KB, 500MB, 1.5GB or 2GiB")
    return round(count)


def parse_json_option(text: str, option: str) -> Any:
    """Return the JSON value of an option; raise a usage error that names the option."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"it is not JSON: {error}", param_hint=option) from error
