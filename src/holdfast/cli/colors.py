"""Whether to colour what is printed: as `--color` says, else on a terminal, unless NO_COLOR is set."""

from __future__ import annotations

import os
import sys

import click


def no_color() -> bool:
    """Whether colours are not wanted even on a terminal. https://no-color.org: set, and not empty."""
    chosen = _chosen()
    return bool(os.environ.get("NO_COLOR")) if chosen is None else not chosen


def is_colored() -> bool:
    """Whether what goes to stdout is coloured."""
    chosen = _chosen()
    return sys.stdout.isatty() and not no_color() if chosen is None else chosen


def choose(ctx: click.Context, _parameter: click.Parameter, when: str) -> None:
    """What `--color` was given. Click's own output follows it, too."""
    ctx.color = {"auto": None, "always": True, "never": False}[when]


def _chosen() -> bool | None:
    ctx = click.get_current_context(silent=True)
    return None if ctx is None else ctx.find_root().color
