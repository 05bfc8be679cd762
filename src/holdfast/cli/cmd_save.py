"""`holdfast save`: a state from a file or a pipe, kept as a checkpoint."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from holdfast.cli.options import json_option, store_option

AGENT = "cli"


@click.command(short_help="Save a state, given as JSON, to a session.")
@click.argument("session")
@click.argument("file", metavar="[FILE|-]", default="-")
@click.option("-m", "message", metavar="TEXT", help="The name of the step: shown by `holdfast timeline`.")
@click.option("--agent", metavar="A", help=f"Whose it is.  [default: as before in the session, else {AGENT}]")
@click.option(
    "--files",
    "files",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False),
    help="With a snapshot of these files.",
)
@click.option("--expect-head", metavar="REF", help="Only if the session stands there; else exit with 4.")
@store_option
@json_option
def save(
    session: str,
    file: str,
    message: str | None,
    agent: str | None,
    files: str | None,
    expect_head: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Save what FILE holds, or standard input for -, as the next checkpoint of SESSION: one JSON value, the
    execution_state. Context and framework stay those of the checkpoint before.

    Prints the id of the checkpoint. Where there is no store yet, one is made in .holdfast/ here. `holdfast show --state`
    prints a state as JSON, so a state can be changed by any program and saved again.
    """
    from holdfast.cli.printable import name
    from holdfast.cli.refs import id_of_ref
    from holdfast.cli.store_location import open_or_make_store

    state = _read(file)
    with open_or_make_store(store) as client:
        before = client.latest(session_id=session, migrate=False)
        id_ = client.save(
            agent or (before.agent_id if before else AGENT),
            before.framework if before else "custom",
            state,
            session,
            context=before.agent_context if before else None,
            step_name=message,
            state_version=before.stored_state_version if before else None,
            expect_head=id_of_ref(client, expect_head) if expect_head else None,
            workspace=files,
        )
        saved = client.get(id_)
    if as_json:
        from holdfast.cli.json_output import checkpoint_fields, print_json

        print_json(checkpoint_fields(saved))
    else:
        click.echo(id_)
        click.echo(f"step {saved.step_index} of {name(session)}", err=True)


def _read(file: str) -> Any:
    from holdfast.cli.printable import printable
    from holdfast.errors import UsageError

    where = "standard input" if file == "-" else printable(file, 200)
    try:
        if file == "-":
            data = sys.stdin.buffer.read()
        else:
            from pathlib import Path

            data = Path(file).read_bytes()
    except OSError as error:
        raise UsageError(f"{where} can't be read: {error.strerror}. Nothing was saved") from error
    try:
        state = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where} is no JSON: {printable(str(error), 200)}. Nothing was saved") from error
    _refuse_types(state)
    return state


def _refuse_types(value: Any) -> None:
    """What `holdfast show` prints for values that JSON has no word for would come back as plain dicts."""
    from holdfast.cli.json_output import TYPE
    from holdfast.cli.printable import printable
    from holdfast.errors import UsageError

    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        where, one = waiting.pop()
        if isinstance(one, dict):
            if TYPE in one:
                raise UsageError(
                    f"{printable(where, 200) or 'the state'} is {{{TYPE!r}: {one[TYPE]!r:.40}, ...}}, as `holdfast show` prints what JSON has "
                    "no word for: it can't be saved as what it was. Save from Python, or change single values with "
                    "`holdfast fork REF --set PATH=VALUE`"
                )
            waiting += [(f"{where}.{key}".lstrip("."), item) for key, item in one.items()]
        elif isinstance(one, list):
            waiting += [(f"{where}.{number}".lstrip("."), item) for number, item in enumerate(one)]
