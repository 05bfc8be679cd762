"""The `holdfast` command: its group of commands, and what becomes of errors."""

from __future__ import annotations

import errno
import importlib
import keyword
import os
import sys
from typing import TYPE_CHECKING, Any, TextIO

import click

from holdfast.cli.colors import choose
from holdfast.cli.printable import printable_lines
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# With their one line of help, so that listing them imports none: a test compares it with what the command says itself.
COMMANDS = {
    "init": "Make a store here, and print the lines that use it.",
    "demo": "See it work: an agent is killed, goes on, and is forked.",
    "status": "Show the store at a glance, and what changed in a directory.",
    "sessions": "List the sessions, the one saved to last first.",
    "runs": "List the runs: alive, waiting for approval, stopped.",
    "resume": "Go on with a run: start its program where its session stands.",
    "timeline": "Show the checkpoints of a session, newest first.",
    "show": "Show one checkpoint, and what its state holds.",
    "save": "Save a state, given as JSON, to a session.",
    "snap": "Take a snapshot of a directory's files.",
    "diff": "Show what differs between two checkpoints: state and files.",
    "compare": "Show two sessions side by side: where they parted, and what differs.",
    "bisect": "Find the step at which a session went wrong.",
    "replay": "Run a session's program once more from a checkpoint, on a fork.",
    "events": "Follow what is saved, as it comes.",
    "restore": "Put files back as they were at a checkpoint, or a session, or both.",
    "rollback": "Move a session to another checkpoint of its tree.",
    "undo": "Take back the last operation, or another one.",
    "redo": "Do again what was undone.",
    "op": "The log of operations.",
    "fork": "Go another way from a checkpoint: a session, an edit, a directory.",
    "adopt": "Go on with what a fork came to.",
    "hook": "Make every tool call of a coding agent a point of return.",
    "rewind": "Go back to a tool call of a coding agent.",
    "watch": "Take snapshots of a directory while somebody works in it.",
    "handoff": "Hand a checkpoint to another agent.",
    "inbox": "List what was handed to an agent, the oldest first.",
    "claim": "Claim a handoff: exactly one gets it.",
    "release": "Give a claimed handoff back.",
    "approvals": "List what waits for somebody's approval.",
    "approve": "Approve a call: it may be carried out, once.",
    "reject": "Reject a call: it is not carried out.",
    "effects": "List the effects of a session, or those in doubt.",
    "resolve": "Say what became of an effect in doubt.",
    "tag": "Name a checkpoint, or list the names.",
    "pin": "Keep a checkpoint, or list what is pinned.",
    "expire": "End checkpoints: they can no longer be restored.",
    "retain": "Let go what a policy does not keep: a dry run without --yes.",
    "gc": "Remove what no checkpoint needs any more.",
    "du": "Show what takes how much.",
    "export": "Write a store or some sessions to one portable file.",
    "import": "Take over an exported file, or what another program has saved.",
    "copy": "Copy a store into another one, of any kind.",
    "langgraph": "Set up `langgraph dev`, and list the threads of LangGraph.",
    "verify": "Read everything, and check it.",
    "migrate": "Check that what is stored would resume with your code.",
    "doctor": "Check the installation and the store around it.",
    "completion": "Print the script that makes a shell complete.",
}
COMPLETING = "_HOLDFAST_COMPLETE"  # click's variable: a shell asks what could follow
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells count
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE
OUTPUT_FAILED = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)  # where what is printed goes to


class Commands(click.Group):
    """Imports a command when it is called, and turns errors into words and exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"holdfast.cli.cmd_{cmd_name}")
        # A command whose name is a word of Python's own has an underscore after it: `import_`.
        command: click.Command = getattr(module, f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name)
        if COMPLETING in os.environ:
            from holdfast.cli.completion import complete_by_name

            complete_by_name(command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The names of commands, without importing them all for their help."""
        from click.shell_completion import CompletionItem

        names = [CompletionItem(name) for name in COMMANDS if name.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - as above
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except HoldfastError as error:
            click.echo(f"holdfast: {printable_lines(str(error))}", err=True)
            ctx.exit(error.exit_code)
        except KeyboardInterrupt:
            click.echo("holdfast: interrupted", err=True)
            ctx.exit(EXIT_INTERRUPTED)
        except BrokenPipeError:
            # The reader has gone (`holdfast timeline | head`). What is still buffered must not fail again at exit.
            _discard_output()
            ctx.exit(EXIT_BROKEN_PIPE)
        except OSError as error:
            if error.filename is not None or error.errno not in OUTPUT_FAILED:
                raise
            _discard_output()
            click.echo(
                f"holdfast: the output can't be written: {error.strerror}. What was asked for may be done", err=True
            )
            ctx.exit(1)
        return result


def _discard_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        from holdfast import __version__

        click.echo(f"holdfast {__version__}")
        ctx.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--store",
    metavar="URL|PATH",
    help="The store: a SQLite file, a directory of files, or a URL. Without it: HOLDFAST_URL, else what the nearest "
    "directory from here upward names (holdfast.toml) or has (.holdfast/).",
)
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    is_eager=True,
    expose_value=False,
    callback=choose,
    help="When to use colours; auto is on a terminal, unless NO_COLOR is set.",
)
@click.option("--no-pager", is_flag=True, help="Print what is longer than the screen at once.")
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version.")
def cli(store: str | None, no_pager: bool) -> None:
    """Keeps an AI agent's place: look at what was saved, and check that it holds.

    \b
    New here?        holdfast demo
    Something saved? holdfast timeline

    \b
    Exit codes: 0 ok, 1 error, 2 usage, 3 not found or expired,
                4 conflict, 5 corrupt, 6 waiting for approval, 130 interrupted.
    """  # noqa: D301 - \b is click's mark for text that must not be rewrapped


def _nowhere() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123 - it is open until the process ends


def main() -> None:
    # A stream that was closed (`>&-`) is None: what is printed is not wanted then.
    sys.stdout = sys.stdout or _nowhere()
    sys.stderr = sys.stderr or _nowhere()
    # Names may hold what the terminal's encoding can't say: that is no reason to fail half-way through a table.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    if COMPLETING in os.environ:
        from holdfast.cli.completion import complete_by_name

        complete_by_name(cli)
    try:
        cli(prog_name="holdfast")
    except KeyboardInterrupt:  # while a command was still being imported
        sys.exit(EXIT_INTERRUPTED)
