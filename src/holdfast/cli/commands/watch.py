"""`holdfast watch`: snapshots of a directory during work in it, taken whenever it has come to rest."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from holdfast.cli.options import common_options
from holdfast.cli.options_workspace import check_workspace_root, make_workspace
from holdfast.cli.store_location import open_or_make_store
from holdfast.errors import UsageError
from holdfast.model.snapshot import SnapshotReport

if TYPE_CHECKING:
    from holdfast.workspace.api import SyncWorkspace

POLL_SECONDS = 0.25  # seconds


@click.command(short_help="Take snapshots of a directory whenever files change.")
@click.argument("directory", metavar="DIR", default=".", type=click.Path(exists=True, file_okay=False))
@click.option(
    "--quiet",
    default=2.0,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Seconds without a change before a snapshot.",
)
@click.option(
    "--longest",
    default=60.0,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Seconds after which a snapshot is taken despite changes.",
)
@click.option("--count", type=click.IntRange(min=1), help="Stop after N snapshots.")
@click.option("--session", metavar="SESSION", help="Session of the snapshots.  [default: the directory's own]")
@common_options
def watch(
    directory: str, quiet: float, longest: float, count: int | None, session: str | None, store: str | None,
    as_json: bool
) -> None:  # fmt: skip
    """Take snapshots of a directory while an agent or a person works in it, until Ctrl-C.

    Takes one at the start, then one whenever files changed and stayed unchanged for a while. Uses change
    notifications where the kernel has them. If a limit of holdfast.toml prevents a snapshot, says and records that,
    and continues. Creates a store if there is none.
    """
    check_workspace_root(directory)
    os.chdir(directory)
    with open_or_make_store(store) as client:
        workspace = make_workspace(client, ".", watch=True, **({} if session is None else {"session_id": session}))
        click.echo(f"watching {workspace.path}; Ctrl-C ends it", err=True)
        taken, saved = 0, ""
        try:
            with _ended_by_every_signal():
                for report, seen in _steps(workspace, quiet, longest):
                    saved = seen
                    _print_snapshot(report, as_json=as_json)
                    taken += 1
                    if taken == count:
                        break
        except KeyboardInterrupt:
            if _reference(workspace) != saved:
                _print_snapshot(workspace.snapshot("watched, to the end"), as_json=as_json)
        finally:
            workspace.close()


@contextlib.contextmanager
def _ended_by_every_signal() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the watch like Ctrl-C: the last changes are stored before it ends."""
    # One that is to be ignored, as with nohup, stays so.
    changed = [item for item in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(item) is signal.SIG_DFL]
    for item in changed:
        signal.signal(item, signal.default_int_handler)
    try:
        yield
    finally:
        for item in changed:
            signal.signal(item, signal.SIG_DFL)


def _steps(workspace: SyncWorkspace, quiet: float, longest: float) -> Iterator[tuple[SnapshotReport, str]]:
    """Yield the snapshots, each when it is due, with the reference of the directory then."""
    report = workspace.snapshot("watched")
    saved = last = _reference_or_refusal(report, workspace)
    yield report, saved
    began = changed = time.monotonic()
    while True:
        time.sleep(POLL_SECONDS)
        now = _reference(workspace)
        at = time.monotonic()
        if now != last:
            if last == saved:
                began = at
            last, changed = now, at
        if last != saved and (at - changed >= quiet or at - began >= longest):
            report = workspace.snapshot("watched")
            saved = last = _reference_or_refusal(report, workspace)
            yield report, saved


def _reference_or_refusal(report: SnapshotReport, workspace: SyncWorkspace) -> str:
    """Return the result of `_reference` while nothing has changed since that snapshot, or its refusal."""
    return report.snapshot.reference if report.snapshot.not_taken is None else _reference(workspace)


def _reference(workspace: SyncWorkspace) -> str:
    """Return the reference of a snapshot of the present directory; if a limit forbids one, that limit."""
    from holdfast.backends.bridge.step import run_inline
    from holdfast.workspace.limits import OverBudgetError

    try:
        _, _, tree = run_inline(workspace._opened.taker.scan())
    except UsageError as error:
        if not isinstance(error.__cause__, OverBudgetError):
            raise
        return str(error)
    return tree.snapshot.reference


def _print_snapshot(report: SnapshotReport, *, as_json: bool) -> None:
    if as_json:
        fields = {
            "checkpoint_id": report.checkpoint_id,
            "session_id": report.session_id,
            "changed": report.changed,
            "not_taken": report.snapshot.not_taken.reason if report.snapshot.not_taken else None,
        }
        click.echo(json.dumps(fields))
    elif report.snapshot.not_taken is None:
        click.echo(f"{report.checkpoint_id[-8:]}  {report.changed} changed")
    if report.snapshot.not_taken is not None:
        click.echo(f"holdfast: {report.snapshot.not_taken.reason}", err=True)
