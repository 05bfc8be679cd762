"""`holdfast compare`: two sessions side by side."""

from __future__ import annotations

import click

from holdfast.cli.options import json_option, store_option


@click.command(short_help="Show two sessions side by side: where they parted, and what differs.")
@click.argument("session")
@click.argument("other", metavar="OTHER")
@store_option
@json_option
def compare(session: str, other: str, store: str | None, as_json: bool) -> None:
    """Show where two sessions parted, what each has done since, and what differs between what they stand at.

    Cost and usage are added up from the metadata of checkpoints: `cost`, and the numbers in `usage`.
    """
    from holdfast.cli.store_location import open_store

    with open_store(store) as client:
        found = client.compare(session, other)
    if as_json:
        from holdfast.cli.diff_output import edit_fields, recorded_fields
        from holdfast.cli.json_output import checkpoint_fields, print_json
        from holdfast.cli.workspaces import change_fields

        print_json(
            {
                "ancestor": checkpoint_fields(found.ancestor) if found.ancestor else None,
                **{
                    name: {
                        "session_id": side.session_id,
                        "head": checkpoint_fields(side.head),
                        "steps": [checkpoint_fields(step) for step in side.steps],
                        "usage": dict(side.usage),
                        "outcome": side.outcome,
                        "recorded": recorded_fields(side.since) if side.since else [],
                        "files": [change_fields(change) for change in side.since.files or ()] if side.since else [],
                    }
                    for name, side in (("a", found.a), ("b", found.b))
                },
                "edits": [edit_fields(edit) for edit in found.diff.edits],
            }
        )
        return
    from holdfast.cli.diff_output import print_diff
    from holdfast.cli.printable import printable
    from holdfast.cli.tables import print_table
    from holdfast.model.comparison import STEPS_SHOWN

    parted = f"parted after {found.ancestor.short_id}" if found.ancestor else "no checkpoint in common"
    click.echo(parted, err=True)
    columns = ("", printable(session, 40), printable(other, 40))
    rows = [*found.rows(), *found.step_rows()[:STEPS_SHOWN]]
    print_table(columns, [tuple(printable(cell, 60) for cell in row) for row in rows])
    print_diff(found.diff)
