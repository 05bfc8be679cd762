"""`holdfast save`: save a state from a file or a pipe as a checkpoint."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from holdfast.cli.options import common_options
from holdfast.cli.output.json import print_json
from holdfast.cli.store_location import open_or_make_store
from holdfast.cli.terminal.sanitize import escape, format_identifier
from holdfast.errors import UsageError
from holdfast.json_form.checkpoint import checkpoint_fields
from holdfast.json_form.values import TYPE

AGENT = "cli"


@click.command(short_help="Save a state, given as JSON, to a session.")
@click.argument("session")
@click.argument("file", metavar="[FILE|-]", default="-")
@click.option("-m", "message", metavar="TEXT", help="Step name, shown by `holdfast timeline`.")
@click.option("--agent", metavar="A", help=f"Agent of the checkpoint.  [default: the session's, else {AGENT}]")
@click.option(
    "--files",
    "files",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False),
    help="Include a snapshot of these files.",
)
@click.option("--tag", metavar="NAME", help="Tag the checkpoint. Exits with 4 if the tag is on another one.")
@click.option("--move-tag", is_flag=True, help="Move the tag from another checkpoint.")
@click.option("--pin", is_flag=True, help="Pin the checkpoint.")
@click.option("--expect-head", metavar="REF", help="Exit with 4 unless this is the head.")
@common_options
def save(
    session: str,
    file: str,
    message: str | None,
    agent: str | None,
    files: str | None,
    tag: str | None,
    move_tag: bool,
    pin: bool,
    expect_head: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Save FILE, or stdin for -, as the next checkpoint of SESSION.

    FILE holds one JSON value, the execution_state. Context and framework are those of the
    checkpoint before. Prints the id of the checkpoint. Without a store, creates one in .holdfast/
    here. `holdfast show --state` prints a state as JSON, so any program can edit it.
    """
    state = read_json(file)
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
            expect_head=client.resolve(expect_head) if expect_head else None,
            workspace=files,
            tag=tag,
            move_tag=move_tag,
            pin=pin,
        )
        saved = client.get(id_)
    if as_json:
        print_json(checkpoint_fields(saved))
    else:
        click.echo(id_)
        click.echo(f"step {saved.step_index} of {format_identifier(session)}", err=True)


def read_json(file: str) -> Any:
    """Return the JSON value of a file, or of standard input for -."""
    where = "standard input" if file == "-" else escape(file, 200)
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        hint = " To save JSON text, pipe it: echo '{…}' | holdfast save SESSION -" if file[:1] in ("{", "[") else ""
        raise UsageError(f"{where} can't be read: {error.strerror}. Nothing was saved.{hint}") from error
    try:
        state = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where} is no JSON: {escape(str(error), 200)}. Nothing was saved") from error
    _refuse_types(state)
    return state


def _refuse_types(value: Any) -> None:
    """Refuse the output of `holdfast show` for non-JSON values: it would come back as plain dicts."""
    waiting: list[tuple[str, Any]] = [("", value)]
    while waiting:
        where, found = waiting.pop()
        if isinstance(found, dict):
            if TYPE in found:
                raise UsageError(
                    f"{escape(where, 200) or 'the state'} is {{{TYPE!r}: {found[TYPE]!r:.40}, ...}}, "
                    "as `holdfast show` prints what JSON has "
                    "no word for: it can't be saved as what it was. Save from Python, or change single values with "
                    "`holdfast fork REF --set PATH=VALUE`"
                )
            waiting += [(f"{where}.{key}".lstrip("."), item) for key, item in found.items()]
        elif isinstance(found, list):
            waiting += [(f"{where}.{number}".lstrip("."), item) for number, item in enumerate(found)]
