"""`holdfast watch`: snapshots of a directory while somebody works in it, taken whenever it has come to rest."""

from __future__ import annotations

import contextlib
import signal
import time
from typing import TYPE_CHECKING

import click

from holdfast.cli.options import json_option, store_option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.model.workspace import SnapshotReport
    from holdfast.workspace.workspace import SyncWorkspace

LOOKS_EVERY = 0.25  # seconds


@click.command(short_help="Take snapshots of a directory while somebody works in it.")
@click.argument("directory", metavar="DIR", default=".", type=click.Path(exists=True, file_okay=False))
@click.option(
    "--quiet",
    default=2.0,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Seconds without a change that end a step.",
)
@click.option(
    "--longest",
    default=60.0,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Seconds after which one is taken though it goes on.",
)
@click.option("--count", type=click.IntRange(min=1), help="Stop after so many snapshots.")
@click.option("--session", metavar="SESSION", help="The session that they belong to. Without it: the directory's own.")
@store_option
@json_option
def watch(
    directory: str, quiet: float, longest: float, count: int | None, session: str | None, store: str | None, as_json: bool
) -> None:  # fmt: skip
    """Take snapshots of a directory while an agent, or anybody, works in it, until Ctrl-C.

    One is taken at the start, and then whenever files have changed and nothing more has for a while. Where the kernel can
    tell what changed this costs next to nothing. Where a limit of holdfast.toml stands against one, that is said and kept in its
    place, and it goes on. Without a store there, one is made.
    """
    import os

    from holdfast.cli.store_location import open_or_make_store
    from holdfast.cli.workspace_option import refuse_what_is_no_workspace, workspace_in

    refuse_what_is_no_workspace(directory)
    os.chdir(directory)
    with open_or_make_store(store) as client:
        workspace = workspace_in(client, ".", watch=True, **({} if session is None else {"session_id": session}))
        click.echo(f"watching {workspace.path}; Ctrl-C ends it", err=True)
        taken, saved = 0, ""
        try:
            with _ended_by_every_signal():
                for report, seen in _steps(workspace, quiet, longest):
                    saved = seen
                    _say(report, as_json=as_json)
                    taken += 1
                    if taken == count:
                        break
        except KeyboardInterrupt:
            if _reference(workspace) != saved:
                _say(workspace.snapshot("watched, to the end"), as_json=as_json)
        finally:
            workspace.close()


@contextlib.contextmanager
def _ended_by_every_signal() -> Iterator[None]:
    """Who stops it as services are stopped, or closes its terminal, ends it as Ctrl-C does: what was not yet kept is then."""
    # One that is to be ignored, as with nohup, stays so.
    changed = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) is signal.SIG_DFL]
    for one in changed:
        signal.signal(one, signal.default_int_handler)
    try:
        yield
    finally:
        for one in changed:
            signal.signal(one, signal.SIG_DFL)


def _steps(workspace: SyncWorkspace, quiet: float, longest: float) -> Iterator[tuple[SnapshotReport, str]]:
    """The snapshots, each when it is due, and what was seen then."""
    report = workspace.snapshot("watched")
    saved = last = _seen_by(report, workspace)
    yield report, saved
    began = changed = time.monotonic()
    while True:
        time.sleep(LOOKS_EVERY)
        now = _reference(workspace)
        at = time.monotonic()
        if now != last:
            if last == saved:
                began = at
            last, changed = now, at
        if last != saved and (at - changed >= quiet or at - began >= longest):
            report = workspace.snapshot("watched")
            saved = last = _seen_by(report, workspace)
            yield report, saved


def _seen_by(report: SnapshotReport, workspace: SyncWorkspace) -> str:
    """What `_reference` says as long as nothing has changed since that snapshot, or since none was taken."""
    return report.snapshot.reference if report.snapshot.not_taken is None else _reference(workspace)


def _reference(workspace: SyncWorkspace) -> str:
    """What a snapshot of the directory as it is would be called; if a limit stands against one, what that is."""
    from holdfast.backends.stepping import run_inline
    from holdfast.errors import UsageError
    from holdfast.workspace.guards import OverBudgetError

    try:
        _, look = run_inline(workspace._opened.taker.look())
    except UsageError as error:
        if not isinstance(error.__cause__, OverBudgetError):
            raise
        return str(error)
    return look.snapshot.reference


def _say(report: SnapshotReport, *, as_json: bool) -> None:
    if as_json:
        import json

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
