"""The choice of coloured output: `--color`, else on a terminal, unless NO_COLOR is set."""

from __future__ import annotations

import os
import sys

import click


def no_color() -> bool:
    """Return whether NO_COLOR forbids colours (https://no-color.org): set, and not empty."""
    chosen = _get_choice()
    return bool(os.environ.get("NO_COLOR")) if chosen is None else not chosen


def is_colored() -> bool:
    """Return whether the output on stdout is coloured."""
    chosen = _get_choice()
    return sys.stdout.isatty() and not no_color() if chosen is None else chosen


def choose_color(ctx: click.Context, _parameter: click.Parameter, when: str) -> None:
    """Apply the value of `--color`. Click's own output follows it, too."""
    ctx.color = {"auto": None, "always": True, "never": False}[when]


def _get_choice() -> bool | None:
    ctx = click.get_current_context(silent=True)
    return None if ctx is None else ctx.find_root().color
