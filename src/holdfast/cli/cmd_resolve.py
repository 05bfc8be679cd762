"""`holdfast resolve`: a person says what became of an effect in doubt."""

from __future__ import annotations

import json
from typing import Any

import click

from holdfast.cli.deciding import deciding_options
from holdfast.cli.options import json_option, store_option


@click.command(short_help="Say what became of an effect in doubt.")
@click.argument("effect_id", metavar="ID")
@click.option("--done", is_flag=True, help="It was carried out.")
@click.option("--not-done", is_flag=True, help="It was not carried out: the next run may do so.")
@click.option("--acknowledge", is_flag=True, help="It may stay as it is, and stands in no other's way.")
@click.option("--result", metavar="JSON", help="With --done: what the call would have returned.")
@deciding_options
@store_option
@json_option
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
    """Say what became of the effect ID, of which nobody knows whether it was carried out.

    Find out first: ask the other side, by the key that `holdfast effects --json` shows. What you say is written to the
    effect's history, with your name, and the next run goes by it: after --done it is given the result, after --not-done it
    carries the effect out. ID is what `holdfast effects` lists, or the last 8 or more digits of it.
    """
    said = [name for name, is_so in (("done", done), ("not_done", not_done), ("acknowledge", acknowledge)) if is_so]
    if len(said) != 1:  # of two that contradict each other, none is taken: an effect may depend on it
        raise click.UsageError("say which, and one only: --done, --not-done or --acknowledge")
    [outcome] = said
    if result is not None and outcome != "done":
        raise click.UsageError("--result goes with --done")
    from holdfast.cli.deciding import who
    from holdfast.cli.effect_output import call_text, effect_fields, effect_of_ref
    from holdfast.cli.json_output import print_json
    from holdfast.cli.printable import printable
    from holdfast.cli.store_location import open_store

    value = None if result is None else _value(result)
    with open_store(store) as client:
        found = effect_of_ref(client, effect_id)
        resolved = client.resolve_effect(found.effect_id, outcome, result=value, by=who(by), note=note)
    if as_json:
        print_json({"effect": effect_fields(resolved)})
        return
    click.echo(f"{resolved.state} {resolved.effect_id}")
    click.echo(
        f"{printable(call_text(resolved), 200)} is {resolved.history[-1].what} by {resolved.history[-1].by}", err=True
    )


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"it is not JSON: {error}", param_hint="--result") from error
