"""`holdfast diff`: what differs between two checkpoints, or between the files of one and the directory as it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import json_option, store_option
from holdfast.cli.workspace_option import directory_option
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast.model.diff import Diff
    from holdfast.model.workspace import Entry, FileChange, Snapshot
    from holdfast.sync_client import SyncClient
    from holdfast.workspace.workspace import SyncWorkspace

BOTH = 2
MAX_SHOWN = 1024 * 1024  # a longer file's lines are not compared


@click.command(short_help="Show what differs between two checkpoints: state and files.")
@click.argument("a", required=False, metavar="[A]")
@click.argument("b", required=False, metavar="[B]")
@click.option("--state", "only_state", is_flag=True, help="Only the state; without B, what A changed of its parent's.")
@click.option("--files", "only_files", is_flag=True, help="Only the files.")
@click.option("--stat", is_flag=True, help="Only how much of each file differs.")
@click.option("--name-only", is_flag=True, help="Only the paths of files.")
@directory_option
@store_option
@json_option
def diff(
    a: str | None,
    b: str | None,
    only_state: bool,
    only_files: bool,
    stat: bool,
    name_only: bool,
    directory: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Show what differs between the checkpoints A and B: their states and, where both have a snapshot, their files.
    Without B, the files of A and the directory as it is; without both, of the last snapshot and the directory.

    A and B are ids, the last 8 or more digits of one, tags, sessions, which stand for their heads, or places in
    these: SESSION@-, SESSION@~3, SESSION@{step}.
    """
    from holdfast.cli.diff_output import edit_fields, print_diff, recorded_fields
    from holdfast.cli.json_output import print_json
    from holdfast.cli.pager import paged
    from holdfast.cli.refs import id_of_ref
    from holdfast.cli.store_location import open_store
    from holdfast.cli.workspace_option import open_workspace
    from holdfast.cli.workspaces import change_fields, shown_path

    if only_state and (only_files or stat or name_only):
        raise click.UsageError("--state leaves out the files, which --files, --stat and --name-only are about")
    if stat and name_only:
        raise click.UsageError("--stat and --name-only are two different things: give one")
    if only_state and a is None:
        raise click.UsageError("--state needs a checkpoint: `holdfast diff A --state` shows what A changed")
    said: dict[str, Any] = {}
    with open_store(store) as client, paged():
        ids = [id_of_ref(client, ref) for ref in (a, b) if ref is not None]
        if only_state or (len(ids) == BOTH and not (only_files or stat or name_only)):
            states = client.diff(*ids) if len(ids) == BOTH else _since_parent(client, ids[0])
            said["edits"] = [edit_fields(edit) for edit in states.edits]
            if states.recorded:
                said["recorded"] = recorded_fields(states)
            if not as_json:
                print_diff(states, files=False)
        if only_state or (len(ids) == BOTH and not only_files and not _have_files(client, ids)):
            if as_json:
                print_json(said)
            return
        workspace = open_workspace(client, directory)
        snapshots = [workspace.snapshot_at(id_) for id_ in ids]
        after = snapshots[1] if len(ids) == BOTH else None
        changes = workspace.diff(snapshots[0] if ids else None, after)
        if as_json:
            print_json({**said, "changes": [change_fields(change) for change in changes]})
        elif name_only:
            for change in changes:
                click.echo(shown_path(change.path))
        else:
            _print(workspace, changes, after, stat=stat)


def _since_parent(client: SyncClient, id_: str) -> Diff:
    parent = client.get(id_).parent_id
    if parent is None:
        raise UsageError(f"{id_} is the first of its tree: it has no parent to compare it with. Give B, too")
    return client.diff(parent, id_)


def _have_files(client: SyncClient, ids: list[str]) -> bool:
    return all(client.get(id_).workspace is not None for id_ in ids)


def _print(workspace: SyncWorkspace, changes: list[FileChange], after: Snapshot | None, *, stat: bool) -> None:
    from holdfast.cli.diff_output import print_lines
    from holdfast.cli.workspaces import shown_path

    for change in changes:
        lines = _lines(workspace, change, after)
        if stat:
            shown = list(lines) if lines is not None else None
            click.echo(f"{change.status} {shown_path(change.path)}{_counted(shown)}")
            continue
        click.echo(_title(change))
        if lines is None:
            click.echo(f"  {_sizes(change)}")
        else:
            print_lines(lines)


def _lines(workspace: SyncWorkspace, change: FileChange, after: Snapshot | None) -> Iterator[str] | None:
    """The difference of two texts, line by line; None where there is none to show."""
    import difflib

    from holdfast.cli.printable import printable
    from holdfast.workspace.guards import is_secret

    if is_secret(change.path.rpartition(b"/")[2]):
        return None
    contents = (
        _content(workspace, change.before, stored=True),
        _content(workspace, change.after, stored=after is not None),
    )
    if contents[0] is None or contents[1] is None or b"\0" in contents[0][:8000] or b"\0" in contents[1][:8000]:
        return None
    old, new = (content.decode("utf-8", "backslashreplace").splitlines() for content in contents if content is not None)
    lines = difflib.unified_diff(old, new, lineterm="", n=3)
    return (printable(line) for number, line in enumerate(lines) if number > 1)


def _content(workspace: SyncWorkspace, entry: Entry | None, *, stored: bool) -> bytes | None:
    """The bytes of a file; none of a path that is not there; None of what has no lines, or is too long."""
    if entry is None:
        return b""
    if entry.kind == "symlink":
        return entry.content
    if entry.kind != "file" or entry.size > MAX_SHOWN:
        return None
    return workspace.content(entry) if stored else workspace.on_disk(entry.path, MAX_SHOWN)


def _title(change: FileChange) -> str:
    from holdfast.cli.workspaces import shown_path

    modes = ""
    if change.before is not None and change.after is not None and change.before.mode != change.after.mode:
        modes = f" (mode {change.before.mode:04o} → {change.after.mode:04o})"
    return f"{change.status} {shown_path(change.path)}{modes}"


def _sizes(change: FileChange) -> str:
    from holdfast.cli.printable import byte_count

    one, two = (entry for entry in (change.before, change.after))
    said = [f"{entry.kind}, {byte_count(entry.size)}" if entry else "nothing" for entry in (one, two)]
    return " → ".join(said)


def _counted(lines: list[str] | None) -> str:
    if lines is None:
        return ""
    added = sum(line.startswith("+") for line in lines)
    removed = sum(line.startswith("-") for line in lines)
    return f"  +{added} -{removed}"
