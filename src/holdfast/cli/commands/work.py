"""`holdfast work` and `holdfast retry`: carry out runs that were started by name."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
import threading
from datetime import UTC, datetime
from typing import Any

import click

from holdfast.cli.import_module import import_module
from holdfast.cli.options import common_options
from holdfast.cli.output.json import print_json
from holdfast.cli.output.listing import print_result
from holdfast.cli.output.run_status import format_progress
from holdfast.cli.store_location import open_store
from holdfast.cli.terminal.sanitize import escape, format_identifier
from holdfast.cli.user_program import open_async_client
from holdfast.model.run_status import RunProgress


@click.command(short_help="Carry out runs that were started by name.")
@click.argument("modules", metavar="MODULE...", nargs=-1, required=True)
@click.option("--concurrency", metavar="N", type=click.IntRange(min=1), default=8, help="Runs at a time.  [default: 8]")
@click.option("--drain", is_flag=True, help="End once no run is due.")
@common_options
def work(modules: tuple[str, ...], concurrency: int, drain: bool, store: str | None, as_json: bool) -> None:
    """Carry out due runs of the functions that MODULE... name with @holdfast.runnable.

    A run is due after `client.start`, after its process died, when its time or its retry has come, and when its
    approval or effect was decided. Any number of workers may share a store. A run stays with workers that know its
    function and version. Modules may be in the current directory; what their runs print goes to stderr.

    SIGTERM or Ctrl-C ends the worker: each run finishes its step and is handed back; a second one does not wait.
    """
    with contextlib.redirect_stdout(sys.stderr):
        for module in modules:
            import_module(module, "MODULE...")
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_WithFields())
        logging.basicConfig(level=logging.WARNING, handlers=[handler])  # unless a module has set up logging
        try:
            count = asyncio.run(_work(store, concurrency, drain=drain, is_shown=not as_json))
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
    if as_json:
        print_json({"carried_out": count})
    else:
        click.echo(f"carried out {count} lives of runs", err=True)


async def _work(store: str | None, concurrency: int, *, drain: bool, is_shown: bool) -> int:
    def print_event(function: str, session: str, event: str) -> None:
        click.echo(f"{format_identifier(session)}  {escape(function, 60)}  {escape(event, 100)}", err=True)

    def print_progress(session: str, done: float, total: float | None, note: str | None) -> None:
        progress = RunProgress(done=done, total=total, note=note, at=datetime.now(UTC))
        click.echo(f"{format_identifier(session)}  {format_progress(progress)}", err=True)

    stop = _stop_by_signal()
    async with open_async_client(store) as client:
        return await client.work(
            concurrency=concurrency,
            drain=drain,
            stop=stop,
            notify=print_event if is_shown else None,
            notify_progress=print_progress if is_shown else None,
        )


class _WithFields(logging.Formatter):
    """Formats records for a person: messages are fixed, and what they are about is in fields."""

    def format(self, record: logging.LogRecord) -> str:
        about = [
            escape(str(value), 500)
            for name, value in vars(record).items()
            if name in ("holdfast_session", "holdfast_error")
        ]
        return ": ".join([super().format(record), *about])


def _stop_by_signal() -> threading.Event:
    """Return an event that SIGTERM and Ctrl-C set. A second signal cancels this task."""
    stop, me, loop = threading.Event(), asyncio.current_task(), asyncio.get_running_loop()

    def handle() -> None:
        if stop.is_set() and me is not None:
            me.cancel()
        stop.set()

    for item in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(item, handle)
    return stop


@click.command(short_help="Make a failed or waiting run due again.")
@click.argument("session")
@common_options
def retry(session: str, store: str | None, as_json: bool) -> None:
    """Make the run of SESSION due now, with all its attempts: a worker carries it out.

    For a run that has failed, and for one that waits for its next attempt or a time. Its finished steps and effects
    are not repeated.

    Exits with 4 if it is running, completed or cancelled.
    """
    with open_store(store) as client:
        client.retry(session)
    fields: dict[str, Any] = {"session_id": session, "status": "waiting"}
    print_result(fields, f"{format_identifier(session)} is due: `holdfast work` carries it out", as_json=as_json)
