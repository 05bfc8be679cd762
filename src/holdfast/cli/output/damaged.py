"""Damaged checkpoints, listed on standard error."""

from __future__ import annotations

from collections.abc import Sequence

import click

from holdfast.cli.terminal.sanitize import escape, format_identifier
from holdfast.model.listing import DamagedCheckpoint

EXIT_CORRUPT = 5


def print_damaged(damaged: Sequence[DamagedCheckpoint]) -> None:
    for checkpoint in damaged:
        subject = f"checkpoint {checkpoint.checkpoint_id}" if checkpoint.checkpoint_id else "a checkpoint"
        if checkpoint.sequence:
            subject += f", number {checkpoint.sequence} of session {format_identifier(checkpoint.session_id)}"
        else:
            subject = f"session {format_identifier(checkpoint.session_id)}"
        click.echo(f"holdfast: {subject}: {escape(checkpoint.message)}", err=True)
    click.echo(
        "holdfast: the others are intact as far as they are listed, and can be restored by their ids. "
        "Keep a copy of the store; "
        "`holdfast verify` reads everything",
        err=True,
    )
