"""`holdfast effects`: effects on the outside world, and those with an unknown outcome."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from holdfast.cli.commands.approvals import decision_options, get_user_name
from holdfast.cli.json_input import parse_json_option
from holdfast.cli.options import common_options, find_by_id
from holdfast.cli.output.json import print_json
from holdfast.cli.output.listing import Column, print_listing
from holdfast.cli.store_location import open_store
from holdfast.cli.terminal.sanitize import escape, format_identifier, format_name, format_utc
from holdfast.json_form.ledger import effect_fields
from holdfast.json_form.values import to_json
from holdfast.model.effect import EffectRecord

if TYPE_CHECKING:
    from holdfast.client.sync import SyncClient


def find_effect(client: SyncClient, ref: str) -> EffectRecord:
    """Return the effect of a reference: its id, or its last digits (8 or more)."""
    return find_by_id(client.effects(), lambda record: record.effect_id, ref, "effect")


def format_call(effect: EffectRecord) -> str:
    arguments = ", ".join(f"{name}={json.dumps(to_json(value))}" for name, value in effect.arguments.items())
    return f"{effect.tool}({arguments})"


COLUMNS: tuple[Column[EffectRecord], ...] = (
    Column("id", lambda record: record.short_id),
    Column("session", lambda record: format_identifier(record.session_id), "whole"),
    Column("call", lambda record: escape(format_call(record), 60), "shrinks"),
    Column("kind", lambda record: str(record.kind)),
    Column("state", lambda record: str(record.state)),
    Column("since (UTC)", lambda record: format_utc(record.history[-1].at)),
    Column("by", lambda record: format_name(record.history[-1].by), "shrinks"),
)


@click.command(short_help="Record the outcome of an effect.")
@click.argument("effect_id", metavar="ID")
@click.option("--done", is_flag=True, help="It was carried out.")
@click.option("--not-done", is_flag=True, help="It was not carried out; the next run may do it.")
@click.option("--acknowledge", is_flag=True, help="Accept it as it is; it blocks no other call.")
@click.option("--result", metavar="JSON", help="With --done: the result of the call.")
@decision_options
@common_options
def resolve(
    effect_id: str,
    done: bool,
    not_done: bool,
    acknowledge: bool,
    result: str | None,
    by: str | None,
    note: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Record the outcome of the effect ID, which is unknown.

    Check the other system first, by the key that `holdfast effects --json` shows. The decision goes to the effect's
    history with your name. After --done, the next run gets the result; after --not-done, it carries out the effect.
    ID is an id from `holdfast effects`, or its last 8 or more digits.
    """
    chosen = [name for name, is_so in (("done", done), ("not_done", not_done), ("acknowledge", acknowledge)) if is_so]
    if len(chosen) != 1:  # of two that contradict each other, none is taken: an effect may depend on it
        raise click.UsageError("say which, and one only: --done, --not-done or --acknowledge")
    [outcome] = chosen
    if result is not None and outcome != "done":
        raise click.UsageError("--result goes with --done")
    value = None if result is None else parse_json_option(result, "--result")
    with open_store(store) as client:
        found = find_effect(client, effect_id)
        resolved = client.resolve_effect(found.effect_id, outcome, result=value, by=get_user_name(by), note=note)
    if as_json:
        print_json({"effect": effect_fields(resolved)})
        return
    click.echo(f"{resolved.state} {resolved.effect_id}")
    click.echo(
        f"{escape(format_call(resolved), 200)} is {resolved.history[-1].what} by {resolved.history[-1].by}", err=True
    )


@click.command(short_help="List effects, or only those with unknown outcome.")
@click.argument("session", required=False)
@click.option("--in-doubt", is_flag=True, help="List only effects with unknown outcome.")
@common_options
def effects(session: str | None, in_doubt: bool, store: str | None, as_json: bool) -> None:
    """List effects of runs, of all sessions or of SESSION's tree, latest first.

    An effect that is "started" or "unknown" without an active run has an unknown outcome: settle it with `holdfast
    resolve ID`. Rollbacks remove no effects from this list.
    """
    with open_store(store) as client:
        found = client.effects(session, in_doubt=in_doubt)
    nothing = "no effect is in doubt" if in_doubt else "no effects"
    print_listing("effects", found, effect_fields, COLUMNS, nothing=nothing, as_json=as_json)
