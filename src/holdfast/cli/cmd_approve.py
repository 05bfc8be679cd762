"""`holdfast approve`: lets a call be carried out, once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from holdfast.cli.confirmation import confirmed, yes_option
from holdfast.cli.deciding import deciding_options
from holdfast.cli.options import json_option, store_option


@click.command(short_help="Approve a call: it may be carried out, once.")
@click.argument("approval_id", metavar="ID")
@click.option(
    "--modify", metavar="JSON", help="Approve it with these arguments in place of its own; those not named stay."
)
@deciding_options
@yes_option
@store_option
@json_option
def approve(
    approval_id: str,
    modify: str | None,
    by: str | None,
    note: str | None,
    yes: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Approve the call that waits as ID: it may be carried out, once, with exactly the arguments that are shown.

    ID is what `holdfast approvals` lists, or the last 8 or more digits of it. A call that needs explicit approval is shown
    whole, and you are asked; a script says --yes. Exits with 4 if somebody has decided about it already.
    """
    from holdfast.cli.approval_output import approval_of_ref, say_decided, show_call
    from holdfast.cli.deciding import who
    from holdfast.cli.store_location import open_store
    from holdfast.model.approval import Gate

    changes = None if modify is None else _changes(modify)
    with open_store(store) as client:
        found = approval_of_ref(client, approval_id)
        show_call(found)
        arguments: dict[str, Any] | None = None
        if changes is not None:
            _check_names(changes, found.call.arguments)
            arguments = {**found.call.arguments, **changes}
            click.echo(f"  with {json.dumps(changes)}", err=True)
        is_asked = found.is_pending and found.gate is Gate.APPROVE
        if is_asked and not confirmed("approve this?", yes=yes):
            return
        answer = "approve" if arguments is None else "modify"
        decided = client.decide(found.approval_id, answer, by=who(by), note=note, arguments=arguments)
    say_decided(decided, as_json=as_json)


def _check_names(changes: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    """A decision is final, so a mistyped name is refused before it is one."""
    for name in changes:
        if name not in arguments:
            has = ", ".join(map(repr, arguments)) or "none"
            raise click.BadParameter(f"the call has no argument {name!r:.60}: it has {has}", param_hint="--modify")


def _changes(text: str) -> dict[str, Any]:
    try:
        given = json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"it is not JSON: {error}", param_hint="--modify") from error
    if not isinstance(given, dict):
        raise click.BadParameter('it must be an object of arguments, such as {"amount": 50}', param_hint="--modify")
    return given
