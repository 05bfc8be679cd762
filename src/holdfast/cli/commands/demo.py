"""`holdfast demo`: an agent that is killed, resumes and is forked, in one command."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.options import json_option
from holdfast.cli.output.json import print_json
from holdfast.cli.terminal.color import no_color as no_color_wanted
from holdfast.errors import UsageError
from holdfast.json_form.values import to_json
from holdfast.model.reports import Stats, VerifyReport

if TYPE_CHECKING:
    from holdfast.cli.demo.story import Crash, FinalState, Fork


@click.command(short_help="Watch an agent get killed, resume and fork.")
@click.option(
    "--keep", metavar="DIR", type=click.Path(path_type=Path, file_okay=False), help="Keep the demo's store in DIR."
)
@click.option("--no-color", is_flag=True, help="Print without colours, as with NO_COLOR.")
@json_option
@click.pass_context
def demo(ctx: click.Context, keep: Path | None, no_color: bool, as_json: bool) -> None:
    """Watch an agent get killed with SIGKILL twice, resume and fork.

    Runs in a few seconds in its own directory, without a network or a model. All printed figures are measured;
    exits with 1 if a check fails.
    """
    import tempfile

    color = not (no_color or no_color_wanted())
    if keep is not None:
        store = keep / ".holdfast" / "store.db"
        if store.exists():
            raise UsageError(f"{keep} has a store already: name a new directory. `cd {keep} && holdfast timeline`")
        holds = _perform(store, keep, color=color, as_json=as_json)
    else:
        with _terminating_as_ctrl_c(), tempfile.TemporaryDirectory(prefix="holdfast-demo-") as directory:
            holds = _perform(Path(directory) / ".holdfast" / "store.db", None, color=color, as_json=as_json)
    ctx.exit(0 if holds else 1)


@contextmanager
def _terminating_as_ctrl_c() -> Iterator[None]:
    """SIGTERM would leave the directory behind, and the agent's process at work in it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        if not callable(signal.getsignal(signal.SIGINT)):
            raise KeyboardInterrupt  # ignored, as in the background of a shell
        signal.raise_signal(signal.SIGINT)  # which is held back while a process is being started

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _perform(store: Path, kept: Path | None, *, color: bool, as_json: bool) -> bool:
    from holdfast import SyncClient
    from holdfast.cli.demo import story
    from holdfast.cli.demo.narrator import Narrator
    from holdfast.cli.demo.processes import run_agent

    teller = Narrator(quiet=as_json, color=color)
    started = time.monotonic()
    with SyncClient.sqlite(store) as client:
        teller.print_opening(store)
        at_work = story.crash(client, store, story.KILLED_AT_WORK, [])
        teller.crash(at_work)
        at_save = story.crash(client, store, story.KILLED_AT_SAVE, [at_work.life])
        teller.crash(at_save)
        last = run_agent(store, story.SESSION, story.POLICY)
        ending = story.finish(client, story.SESSION, story.POLICY, [at_work.life, at_save.life, last])
        teller.print_ending(last, ending)
        fork = story.fork(client, store)
        teller.fork(fork, ending)
        teller.timeline(client.tree(story.SESSION))
    report, stats = story.check(store)
    teller.check(report, stats)
    holds = at_work.holds and at_save.holds and ending.holds and fork.ending.holds and report.ok
    seconds = time.monotonic() - started
    teller.print_closing(seconds, kept, holds=holds)
    if as_json:
        print_json(
            {
                "ok": holds,
                "seconds": round(seconds, 3),
                "store": str(store) if kept else None,
                "crashes": [_crash_fields(at_work), _crash_fields(at_save)],
                "ending": _ending_fields(ending),
                "fork": _fork_fields(fork),
                **_store_fields(report, stats),
            }
        )
    return holds


def _crash_fields(crash: Crash) -> dict[str, Any]:
    return {
        "killed_when": crash.life.killed_when,
        "was_killed": crash.life.was_killed,
        "last_acknowledged": crash.acknowledged,
        "last_found": crash.found,
        "lost": list(crash.lost),
    }


def _ending_fields(ending: FinalState) -> dict[str, Any]:
    from holdfast.cli.demo.narrator import COMPARED

    return {
        "is_exact": ending.is_exact,
        "repeated": list(ending.repeated),
        "outcome": {name: to_json(ending.state.get(name)) for name in COMPARED},
    }


def _fork_fields(fork: Fork) -> dict[str, Any]:
    return {"source_id": fork.source_id, "seconds": round(fork.seconds, 6), **_ending_fields(fork.ending)}


def _store_fields(report: VerifyReport, stats: Stats) -> dict[str, Any]:
    return {
        "checked": report.checked,
        "problems": [problem.message for problem in report.problems],
        "logical_bytes": stats.logical_bytes,
        "stored_bytes": stats.stored_bytes,
    }
