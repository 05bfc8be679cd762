"""What a rollback or a fork does not take back, to people; and how they name what may stay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from holdfast.cli.effect_output import call_text, effect_of_ref
from holdfast.cli.printable import name, printable
from holdfast.errors import CheckpointNotFoundError, UnacknowledgedError

if TYPE_CHECKING:
    from holdfast.model.reports import ForkReport, RollbackReport
    from holdfast.sync_client import SyncClient

WIDTH = 120


def say_left_behind(report: RollbackReport | ForkReport) -> None:
    for effect in report.effects:
        undoable = ", and can be undone" if effect.undoable else ""
        click.echo(f"  stays done{undoable}: {printable(call_text(effect), WIDTH)} ({effect.short_id})", err=True)
    for effect in report.unknown:
        doubted = printable(call_text(effect), WIDTH)
        click.echo(f"  nobody knows whether it was done: {doubted} ({effect.short_id})", err=True)
    for handed in report.consumers:
        by = f" ({printable(handed.by, 60)})" if handed.by else ""
        click.echo(
            f"  agent {name(handed.target_agent_id)}{by} has gone on from handoff {handed.handoff_id[-8:]}", err=True
        )
    for approval in getattr(report, "approvals_voided", ()):
        click.echo(f"  void: the approval {approval.short_id} of {printable(approval.call.tool, 60)}", err=True)


@contextmanager
def refused_in_options() -> Iterator[None]:
    """What the library says to do next is said for Python: here it is done by options."""
    try:
        yield
    except UnacknowledgedError as error:
        told = f"{error.refusal} Look at each, then name each by --acknowledge ID, or leave out --strict"
        raise UnacknowledgedError(told, error.report, error.refusal) from error


def acknowledged(client: SyncClient, refs: Iterable[str]) -> list[str]:
    """The ids of effects and handoffs that are meant: each by its id, or by the last eight or more digits of it."""
    return [_id_of(client, ref) for ref in refs]


def _id_of(client: SyncClient, ref: str) -> str:
    try:
        return effect_of_ref(client, ref).effect_id
    except CheckpointNotFoundError as no_effect:
        try:
            return client.resolve(ref)
        except CheckpointNotFoundError:
            raise no_effect from None
