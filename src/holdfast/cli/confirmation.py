"""Asking before something is removed: a person is asked, a script says --yes."""

from __future__ import annotations

import sys

import click

yes_option = click.option("--yes", "-y", is_flag=True, help="Do it without asking.")


def confirmed(question: str, *, yes: bool) -> bool:
    """Whether to go on. Who can't be asked, because this is no terminal, is told to say --yes."""
    if yes:
        return True
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError("nothing was done: nobody can be asked here. Add --yes to do it")
    return click.confirm(question, err=True)
