"""`holdfast effects`: what was done to the outside world, and what nobody knows about."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.options import json_option, store_option

if TYPE_CHECKING:
    from holdfast.model.effects import Effect


@click.command(short_help="List the effects of a session, or those in doubt.")
@click.argument("session", required=False)
@click.option("--in-doubt", is_flag=True, help="Only those of which nobody knows whether they were carried out.")
@store_option
@json_option
def effects(session: str | None, in_doubt: bool, store: str | None, as_json: bool) -> None:
    """List the effects that runs have carried out, of all sessions or of the tree of SESSION, the latest first.

    An effect that is "started" or "unknown", and that no run is at any more, is in doubt: `holdfast resolve ID` says what
    became of it. Effects stay listed whatever is rolled back.
    """
    from holdfast.cli.store_location import open_store

    with open_store(store) as client:
        found = client.effects(session, in_doubt=in_doubt)
    if as_json:
        from holdfast.cli.effect_output import effect_fields
        from holdfast.cli.json_output import print_json

        print_json({"effects": [effect_fields(effect) for effect in found]})
    elif found:
        _print(found)
    else:
        click.echo("no effect is in doubt" if in_doubt else "no effects", err=True)


def _print(found: list[Effect]) -> None:
    from holdfast.cli.effect_output import call_text
    from holdfast.cli.printable import name, printable
    from holdfast.cli.tables import print_table

    print_table(
        ("id", "session", "call", "kind", "state", "since (UTC)", "by"),
        [
            (
                effect.short_id,
                name(effect.session_id),
                printable(call_text(effect), 60),
                str(effect.kind),
                str(effect.state),
                f"{effect.history[-1].at:%Y-%m-%d %H:%M:%S}",
                name(effect.history[-1].by),
            )
            for effect in found
        ],
        shrinks=("session", "call", "by"),
    )
