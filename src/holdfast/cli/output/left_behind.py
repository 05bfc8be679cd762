"""The effects that a rollback or a fork does not undo, for people; and how they acknowledge them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from holdfast.cli.commands.effects import find_effect, format_call
from holdfast.cli.terminal.sanitize import escape, format_identifier
from holdfast.errors import CheckpointNotFoundError, UnacknowledgedError
from holdfast.model.reports import ForkReport, RollbackReport

if TYPE_CHECKING:
    from holdfast.client.sync import SyncClient

WIDTH = 120


def print_left_behind(report: RollbackReport | ForkReport) -> None:
    for effect in report.effects:
        undoable = ", and can be undone" if effect.undoable else ""
        click.echo(f"  stays done{undoable}: {escape(format_call(effect), WIDTH)} ({effect.short_id})", err=True)
    for effect in report.unknown:
        doubted = escape(format_call(effect), WIDTH)
        click.echo(f"  outcome unknown: {doubted} ({effect.short_id})", err=True)
    for handed in report.consumers:
        agent = format_identifier(handed.target_agent_id) + (f" ({escape(handed.by, 60)})" if handed.by else "")
        click.echo(f"  agent {agent} has continued from handoff {handed.handoff_id[-8:]}", err=True)
    for message in getattr(report, "published", ()):
        groups = f", consumed by {escape(', '.join(message.groups), 60)}" if message.groups else ""
        click.echo(
            f"  stays published: message {message.message_id[-8:]} of {escape(message.topic, 60)}{groups}", err=True
        )
    for message in getattr(report, "consumed", ()):
        group = f"{escape(message.topic, 60)}, group {escape(message.groups[0], 60)}"
        click.echo(f"  stays consumed: message {message.message_id[-8:]} of {group}", err=True)
    for approval in getattr(report, "approvals_voided", ()):
        click.echo(f"  void: the approval {approval.short_id} of {escape(approval.call.tool, 60)}", err=True)


@contextmanager
def rephrase_refusal() -> Iterator[None]:
    """Rephrase the library's advice: it names parameters, the command line has options."""
    try:
        yield
    except UnacknowledgedError as error:
        message = f"{error.refusal} Look at each, then name each by --acknowledge ID, or leave out --strict"
        raise UnacknowledgedError(message, error.report, error.refusal) from error


def resolve_acknowledged(client: SyncClient, refs: Iterable[str]) -> list[str]:
    """Return the ids of the given effects and handoffs: each by its id, or by its last digits (8 or more)."""
    return [_id_of(client, ref) for ref in refs]


def _id_of(client: SyncClient, ref: str) -> str:
    try:
        return find_effect(client, ref).effect_id
    except CheckpointNotFoundError as no_effect:
        try:
            return client.resolve(ref)
        except CheckpointNotFoundError:
            raise no_effect from None
