"""The narrator of the demo: prints each act as it happens, with numbers and checks measured in it."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

import click

from holdfast.cli.demo import agent, story
from holdfast.cli.demo.processes import AgentProcess
from holdfast.cli.output.graph import draw_tree
from holdfast.cli.terminal.sanitize import format_bytes
from holdfast.cli.terminal.table import format_table

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.model.listing import Tree
    from holdfast.model.reports import Stats, VerifyReport

FIVE_LINES = """\
from holdfast import SyncClient
client = SyncClient.sqlite()                     # one local file: .holdfast/store.db
checkpoint = client.latest(session_id="my-run")  # None the first time
state = checkpoint.execution_state if checkpoint else {"messages": []}
client.save(agent_id="my-agent", session_id="my-run", execution_state=state)  # after every step
"""

COMPARED = ("policy", "supplier", "total", "arrives")


class Narrator:
    def __init__(self, *, quiet: bool, color: bool) -> None:
        self._quiet = quiet
        self._color = color and sys.stdout.isatty()

    def _title(self, text: str) -> None:
        self._print("\n" + (click.style(text, bold=True) if self._color else text))

    def _print(self, text: str = "") -> None:
        if not self._quiet:
            click.echo(text, color=self._color)

    def _judge(self, text: str, *, holds: bool) -> None:
        word = "ok  " if holds else "FAIL"
        self._print(f"  {click.style(word, fg='green' if holds else 'red') if self._color else word} {text}")

    def print_opening(self, store: Path) -> None:
        self._title(f"An agent of {len(agent.NAMES)} steps saves after each step")
        self._print(f"  store  {store}")
        self._print(f"  steps  {', '.join(agent.NAMES[:6])},\n         {', '.join(agent.NAMES[6:])}")

    def crash(self, crash: story.Crash) -> None:
        life = crash.life
        self._title(f"SIGKILL while it {_describe_action(life.killed_when or '')}")
        self._print(f"  {_start(life)}")
        ending = f"ended with exit code {life.exit_code}" if not life.was_killed else "was killed"
        self._print(
            f"  process {life.process_id} {ending} after {life.seconds:.1f} s, {len(life.saved)} saves acknowledged"
        )
        self._judge(
            f"every acknowledged save is there; the last is {crash.acknowledged}"
            if not crash.lost
            else f"lost: {', '.join(crash.lost)}",
            holds=crash.holds,
        )
        interrupted = (life.killed_when or "").split()[1:2]
        if crash.life.killed_when and crash.life.killed_when.startswith("saving"):
            whole = [crash.found] == interrupted
            outcome = "there, and whole: it had been committed" if whole else "absent, not torn: its step is repeated"
            self._print(f"       the save that was interrupted is {outcome}")

    def print_ending(self, life: AgentProcess, ending: story.FinalState) -> None:
        self._title("A new process resumes, and finishes")
        self._print(f"  {_start(life)}, did {', '.join(life.began)}")
        self._judge(
            "no step with an acknowledged save was repeated"
            if not ending.repeated
            else f"repeated: {', '.join(ending.repeated)}",
            holds=not ending.repeated,
        )
        self._judge(
            "the final state equals, in value and in type, that of an uninterrupted run"
            if ending.is_exact
            else "the final state is not that of an uninterrupted run",
            holds=ending.is_exact,
        )

    def fork(self, fork: story.Fork, main: story.FinalState) -> None:
        self._title(f"What if? A fork after {story.FORKED_AFTER} decides otherwise")
        self._print(f"  the fork took {fork.seconds * 1000:.1f} ms; nothing was copied")
        self._judge("the fork, too, has the expected result", holds=fork.ending.holds)
        self._print()
        rows = [(name, str(main.state.get(name)), str(fork.ending.state.get(name))) for name in COMPARED]
        for line in format_table(("", story.SESSION, story.FORK), rows).splitlines():
            self._print(f"  {line}")

    def timeline(self, tree: Tree) -> None:
        self._title("The timeline, newest first (holdfast timeline --graph)")
        for line in draw_tree(tree):
            self._print(f"  {line}")

    def check(self, report: VerifyReport, stats: Stats) -> None:
        self._title("The store (holdfast verify)")
        self._judge(f"{report.checked} checkpoints checked, {len(report.problems)} problems", holds=report.ok)
        self._print(
            f"       {format_bytes(stats.logical_bytes)} of states are kept in {format_bytes(stats.stored_bytes)}"
            f" ({stats.ratio:.1f} to 1, the file's own overhead included)"
        )

    def print_closing(self, seconds: float, kept: Path | None, *, holds: bool) -> None:
        self._title("In your own code, these five lines")
        self._print()
        for line in FIVE_LINES.splitlines():
            self._print(f"    {line}")
        self._print()
        if kept is not None:
            place = shlex.quote(str(kept))
            self._print(f"Look around:       cd {place} && holdfast timeline")
            self._print(f"See it, drawn:     cd {place} && holdfast ui")
        else:
            self._print("The demo's store is removed again. To keep one, and see it in a browser:")
            self._print("    holdfast demo --keep demo && cd demo && holdfast ui")
        self._print(f"{'All held' if holds else 'NOT everything held'}, in {seconds:.1f} s.")


def _describe_action(action: str) -> str:
    word, _, name = action.partition(" ")
    return f"saves {name}" if word == "saving" else f"works on {name}"


def _start(life: AgentProcess) -> str:
    done = life.resumed_at or 0
    if done == 0:
        return "started at the first step"
    return f"resumed after {agent.NAMES[done - 1]}, with {done} of {len(agent.NAMES)} steps done"
