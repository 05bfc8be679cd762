"""`holdfast diff`: the differences between two checkpoints, or between a checkpoint and a directory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import common_options, raw_option
from holdfast.cli.options_workspace import directory_option, forked_from, open_workspace
from holdfast.cli.output.diff import print_diff, print_lines, print_start_of_diff
from holdfast.cli.output.files import format_path
from holdfast.cli.output.json import print_json
from holdfast.cli.output.langgraph import list_nodes
from holdfast.cli.store_location import open_store
from holdfast.cli.terminal.pager import page_output
from holdfast.cli.terminal.sanitize import escape, format_bytes, format_name
from holdfast.cli.terminal.table import print_table
from holdfast.errors import UsageError
from holdfast.json_form.difference import (
    change_fields,
    comparison_counts,
    comparison_fields,
    edit_fields,
    recorded_fields,
)
from holdfast.model import ids
from holdfast.model.comparison import LINES_SHOWN, STEPS_SHOWN, Comparison, condense
from holdfast.model.diff import Diff
from holdfast.model.snapshot import FileChange, FileEntry, Snapshot

if TYPE_CHECKING:
    from holdfast.client.sync import SyncClient
    from holdfast.workspace.api import SyncWorkspace

CELL = 60
PATHS_SHOWN = 12  # unless everything is requested
LINES_OF_EACH = 3


@click.command(short_help="Compare two sessions since their common ancestor.")
@click.argument("session")
@click.argument("other", metavar="OTHER")
@click.option("--stat", is_flag=True, help="Print only counts by path.")
@click.option("--all", "everything", is_flag=True, help="Print every step and difference.")
@raw_option
@common_options
def compare(
    session: str, other: str, stat: bool, everything: bool, raw: bool, store: str | None, as_json: bool
) -> None:
    """Compare two sessions since their common ancestor: steps and differences of their heads.

    Long sessions are shortened: first and last steps, counts by path, and the first differences. Counts are
    additions (+), removals (-) and changes (~). Cost and usage are sums over the metadata of checkpoints: `cost`,
    and the numbers in `usage`.
    """
    if stat and everything:
        raise click.UsageError("--stat and --all are two different things: give one")
    with open_store(store) as client:
        found = client.compare(session, other)
        names = {} if as_json or stat else _nodes(client, found, everything=everything)
    if as_json:
        print_json(comparison_counts(found, raw=raw) if stat else comparison_fields(found))
        return
    parted = f"diverged after {_ancestor(found)}" if found.ancestor else "no common ancestor"
    click.echo(parted, err=True)
    with page_output():
        if stat:
            _print_stat(found, raw=raw, most=None)
            return
        left = _print_compare(found, names, everything=everything, raw=raw)
    if left:
        click.echo("shortened: --all shows every step and difference, --stat only counts", err=True)


def _ancestor(found: Comparison) -> str:
    ancestor = found.ancestor
    assert ancestor is not None
    step = f"step {ancestor.step_index} {format_name(ancestor.step_name)}".rstrip()
    return ancestor.short_id if ancestor.step_index is None else f"{ancestor.short_id} ({step})"


def _nodes(client: SyncClient, found: Comparison, *, everything: bool) -> dict[str, str]:
    """Return the nodes of LangGraph that ran in each step that is shown, by checkpoint."""
    shown = {
        step.checkpoint_id: step
        for side in (found.a, found.b)
        for step in (side.steps if everything else (*side.steps[:STEPS_SHOWN], *side.steps[-STEPS_SHOWN:]))
    }
    return {id_: f"{step.step_name} {nodes}" for id_, step in shown.items() if (nodes := list_nodes(client, step))}


def _print_compare(found: Comparison, names: dict[str, str], *, everything: bool, raw: bool) -> bool:
    """Returns whether anything was left out."""
    columns = ("", escape(found.a.session_id, 40), escape(found.b.session_id, 40))
    steps = found.step_rows(names)
    is_long = len(steps) > STEPS_SHOWN
    by_name = found.name_rows() if is_long else []
    rows = [*found.rows(), *by_name, *(steps if everything else condense(steps))]
    print_table(columns, [tuple(escape(cell, CELL) for cell in row) for row in rows], shrinks=columns[1:])
    is_much = not everything and sum(1 for _ in found.diff.lines(raw=raw)) > LINES_SHOWN
    if is_much:
        click.echo()
        _print_stat(found, raw=raw, most=PATHS_SHOWN)
        click.echo()
        print_start_of_diff(found.diff, raw=raw, each=LINES_OF_EACH, most=PATHS_SHOWN)
    elif found.diff:
        click.echo()
        print_diff(found.diff, raw=raw)
    return (is_long or is_much) and not everything


def _print_stat(found: Comparison, *, raw: bool, most: int | None) -> None:
    counted = found.stat(raw=raw)
    columns = ("path", *(f"{escape(side.session_id, 24)} since" for side in (found.a, found.b)), "between them")
    rows = [
        (escape(path_stat.path, CELL), path_stat.a.text, path_stat.b.text, path_stat.between.text)
        for path_stat in counted[:most]
    ]
    if len(counted) > len(rows):
        rows.append((f"… and {len(counted) - len(rows)} more", "", "", ""))
    print_table(columns, rows, shrinks=columns[:1])


BOTH = 2
MAX_SHOWN = 1024 * 1024  # a longer file's lines are not compared


@click.command(short_help="Show the differences of two checkpoints: state and files.")
@click.argument("a", required=False, metavar="[A]")
@click.argument("b", required=False, metavar="[B]")
@click.option("--state", "only_state", is_flag=True, help="Compare only states; without B, with A's parent.")
@click.option("--files", "only_files", is_flag=True, help="Compare only files.")
@click.option("--stat", is_flag=True, help="Print only counts by file.")
@click.option("--name-only", is_flag=True, help="Print only paths of files.")
@raw_option
@directory_option
@common_options
def diff(
    a: str | None,
    b: str | None,
    only_state: bool,
    only_files: bool,
    stat: bool,
    name_only: bool,
    raw: bool,
    directory: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Show the differences of the checkpoints A and B: states and, if both have a snapshot, files.

    Without B, compare the files of A with the directory; if A has no snapshot, show its changes to the parent's
    state. Without A and B, compare the last snapshot or restore with the directory.

    A and B are ids, their last 8 or more digits, tags, sessions (their heads), or positions: SESSION@-, SESSION@~3,
    SESSION@{step}.
    """
    if only_state and (only_files or stat or name_only):
        raise click.UsageError("--state leaves out the files, which --files, --stat and --name-only are about")
    if stat and name_only:
        raise click.UsageError("--stat and --name-only are two different things: give one")
    if only_state and a is None:
        raise click.UsageError("--state needs a checkpoint: `holdfast diff A --state` shows what A changed")
    output: dict[str, Any] = {}
    with open_store(store) as client, page_output():
        ids = [client.resolve(ref) for ref in (a, b) if ref is not None]
        asks_for_files = only_files or stat or name_only or directory is not None
        if len(ids) == 1 and not (only_state or asks_for_files or _has_snapshot(client, ids[0])):
            only_state = True
            click.echo(f"{a} has no snapshot of files: this is what it changed of its parent's state", err=True)
        if only_state or (len(ids) == BOTH and not (only_files or stat or name_only)):
            states = client.diff(*ids) if len(ids) == BOTH else _diff_with_parent(client, ids[0])
            output["edits"] = [edit_fields(edit) for edit in states.edits]
            if states.recorded:
                output["recorded"] = recorded_fields(states)
            if not as_json:
                print_diff(states, files=False, raw=raw)
        if only_state or (len(ids) == BOTH and not only_files and not _have_files(client, ids)):
            if as_json:
                print_json(output)
            return
        workspace = open_workspace(client, directory)
        snapshots = [workspace.snapshot_at(id_) for id_ in ids]
        after = snapshots[1] if len(ids) == BOTH else None
        changes = workspace.diff(snapshots[0] if ids else forked_from(workspace), after)
        if as_json:
            print_json({**output, "changes": [change_fields(change) for change in changes]})
        elif name_only:
            for change in changes:
                click.echo(format_path(change.path))
        else:
            _print(workspace, changes, after, stat=stat)


def _diff_with_parent(client: SyncClient, id_: str) -> Diff:
    parent = client.get(id_).parent_id
    if parent is None:
        raise UsageError(
            f"{id_} is the first of its tree: it has no parent to compare it with. Give B, "
            f"too; `holdfast show {id_}` shows its state"
        )
    return client.diff(parent, id_)


def _has_snapshot(client: SyncClient, id_: str) -> bool:
    """Return whether the checkpoint or one before it has a snapshot of files."""
    from holdfast.backends.bridge.step import run_inline
    from holdfast.operations import lookup
    from holdfast.operations import snapshot_read as snapshots

    ctx = client._ctx
    stored = run_inline(lookup.load_live_record(ctx, ids.from_text(id_)))
    return run_inline(snapshots.find_nearest(ctx, stored)) is not None


def _have_files(client: SyncClient, ids: list[str]) -> bool:
    return all(client.get(id_).workspace is not None for id_ in ids)


def _print(workspace: SyncWorkspace, changes: list[FileChange], after: Snapshot | None, *, stat: bool) -> None:
    for change in changes:
        lines = _lines(workspace, change, after)
        if stat:
            shown = list(lines) if lines is not None else None
            click.echo(f"{change.status} {format_path(change.path)}{_count_lines(shown)}")
            continue
        click.echo(_title(change))
        if lines is None:
            click.echo(f"  {_sizes(change)}")
        else:
            print_lines(lines)


def _lines(workspace: SyncWorkspace, change: FileChange, after: Snapshot | None) -> Iterator[str] | None:
    """Return the difference of two texts, line by line; None where there is none to show."""
    import difflib

    from holdfast.workspace.limits import is_secret

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
    return (escape(line) for number, line in enumerate(lines) if number > 1)


def _content(workspace: SyncWorkspace, entry: FileEntry | None, *, stored: bool) -> bytes | None:
    """Return the bytes of a file: empty for a missing path, None for a file without lines or too long."""
    if entry is None:
        return b""
    if entry.kind == "symlink":
        return entry.content
    if entry.kind != "file" or entry.size > MAX_SHOWN:
        return None
    return workspace.content(entry) if stored else workspace.on_disk(entry.path, MAX_SHOWN)


def _title(change: FileChange) -> str:
    modes = ""
    if change.before is not None and change.after is not None and change.before.mode != change.after.mode:
        modes = f" (mode {change.before.mode:04o} → {change.after.mode:04o})"
    return f"{change.status} {format_path(change.path)}{modes}"


def _sizes(change: FileChange) -> str:
    file_entry, two = (entry for entry in (change.before, change.after))
    sizes = [f"{entry.kind}, {format_bytes(entry.size)}" if entry else "nothing" for entry in (file_entry, two)]
    return " → ".join(sizes)


def _count_lines(lines: list[str] | None) -> str:
    if lines is None:
        return ""
    added = sum(line.startswith("+") for line in lines)
    removed = sum(line.startswith("-") for line in lines)
    return f"  +{added} -{removed}"
