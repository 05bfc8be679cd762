"""`holdfast fork`: continue from a checkpoint in a new session, with edited state and copied files."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from holdfast.cli.fork_records import write_fork_record
from holdfast.cli.options import common_options, strict_options
from holdfast.cli.options_workspace import admission_options, directory_option, open_workspace
from holdfast.cli.output.files import format_count, format_path
from holdfast.cli.output.json import print_json
from holdfast.cli.output.left_behind import print_left_behind, rephrase_refusal, resolve_acknowledged
from holdfast.cli.output.restore import print_left
from holdfast.cli.store_location import StoreLocation, locate, open_store, without_password
from holdfast.cli.terminal.progress import progress_bar
from holdfast.cli.terminal.sanitize import escape
from holdfast.errors import HoldfastError
from holdfast.json_form.input import parse_assignment
from holdfast.json_form.operation import fork_fields
from holdfast.model.snapshot import ForkedWorkspace

SHOWN = 20


@click.command(short_help="Start a new session at a checkpoint, with edits or files.")
@click.argument("ref")
@click.argument("place", metavar="[DIR]", type=click.Path(), required=False)
@click.option(
    "--session", "--name", "session", metavar="NAME", help="Name of the new session.  [default: SESSION-fork-N]"
)
@click.option(
    "--set",
    "assignments",
    metavar="PATH=VALUE",
    multiple=True,
    help="Set a value in the state; repeatable. VALUE is JSON, otherwise text.",
)
@strict_options
@admission_options
@directory_option
@common_options
def fork(
    ref: str,
    place: str | None,
    session: str | None,
    assignments: tuple[str, ...],
    strict: bool,
    acknowledge: tuple[str, ...],
    include_git: bool,
    include_set_id: bool,
    directory: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Start a new session at a checkpoint. Nothing is copied, and the first session does not change.

    REF is an id, its last 8 or more digits, a tag, or a session (its head), or a position: SESSION@-, SESSION@~3,
    SESSION@{step}. PATH is as in `holdfast show --path`: messages.-1.content; or a JSON Pointer:
    /messages/0/content. It must exist; +PATH adds a key, and messages.- is the place after the last element. VALUE
    is converted to the type of the value it replaces (an Enum, a datetime, a Decimal), or refused.

    With DIR, a new or empty directory, the checkpoint's files are written there, shared with the first directory
    where the file system supports it. Commands in DIR find the store by a record in your user configuration.
    Repositories and set-id bits of imported snapshots are left out and listed, unless you ask for them.
    """
    if place is not None and (strict or acknowledge):
        raise click.UsageError("--strict and --acknowledge are for a fork without a directory: make that first")
    if place is None and (include_git or include_set_id):
        raise click.UsageError("--include-git and --include-set-id are for a fork with a directory: name it")
    edits = dict(parse_assignment(text) for text in assignments)
    made: ForkedWorkspace | None = None
    location = locate(store)
    with open_store(store) as client, rephrase_refusal():
        source = client.resolve(ref)
        if place is None:
            may_stay = resolve_acknowledged(client, acknowledge)
            forked = client.fork(source, session, set=edits or None, strict=strict, acknowledge=may_stay)
        else:
            workspace = open_workspace(client, directory)
            with progress_bar("forking") as progress:
                made = workspace.fork(
                    source,
                    place,
                    session_id=session,
                    set=edits or None,
                    progress=progress,
                    include_git=include_git,
                    include_set_id=include_set_id,
                )
            assert made.report is not None  # a checkpoint was forked
            forked = made.report
    if made is not None:
        _record(made.directory, location, forked.checkpoint_id)
    name, id_ = forked.session_id, forked.checkpoint_id
    changed = made.files_changed if made else ()
    if as_json:
        print_json(fork_fields(forked, made))
        return
    if made is not None:
        click.echo(f"{made.directory}: {format_count(made.paths, 'path')}, session {escape(name)}")
    else:
        click.echo(f"session {escape(name)} at {id_}")
    print_left_behind(forked)
    print_left(made.left if made else ())
    for path in changed[:SHOWN]:
        click.echo(f"  changed here since the last snapshot, so not in the fork: {format_path(path)}", err=True)
    if len(changed) > SHOWN:
        click.echo(f"  … and {len(changed) - SHOWN} more", err=True)
    if made is not None:
        click.echo(f"bring it back: holdfast adopt {shlex.quote(name)} {shlex.quote(str(made.directory))}", err=True)
    if edits:
        click.echo(f"see the edits: holdfast diff {source[-8:]} {id_[-8:]}", err=True)


def _record(directory: Path, location: StoreLocation, checkpoint: str) -> None:
    """Let commands in the directory of a fork find its store."""
    place = str(location.path.resolve()) if location.path is not None else str(location.url)
    if without_password(place) != place:
        click.echo(f"in {directory}, name the store: a URL with a password is not recorded", err=True)
        return
    try:
        write_fork_record(directory, place, checkpoint)
    except HoldfastError as error:
        click.echo(f"holdfast: {error}. In {directory}, name the store: --store {shlex.quote(place)}", err=True)
    else:
        click.echo(f"commands in {escape(str(directory))} find its store, {escape(place)}", err=True)
