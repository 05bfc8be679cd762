"""The `holdfast` command: its group of commands, and its handling of errors."""

from __future__ import annotations

import errno
import importlib
import keyword
import os
import sys
from typing import TYPE_CHECKING, Any, TextIO

import click

from holdfast.cli.output.error import (
    ARGUMENTS,
    EXIT_INTERRUPTED,
    JsonFailure,
    print_failure,
    print_json_failure,
    print_words,
    wants_json,
)
from holdfast.cli.suggestions import CommandGroup
from holdfast.cli.terminal.color import choose_color
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# With their one line of help, so that listing them imports none: a test compares it with what the
# command says itself.
COMMANDS = {
    "init": "Create a store, and print the code that uses it.",
    "demo": "Watch an agent get killed, resume and fork.",
    "ui": "Open the web page of a store or an exported file.",
    "status": "Show the store, and changed files of a directory.",
    "sessions": "List sessions, most recently saved first.",
    "runs": "List runs and their status.",
    "resume": "Resume a run: start its program at the session's head.",
    "work": "Carry out runs that were started by name.",
    "retry": "Make a failed or waiting run due again.",
    "timeline": "List the checkpoints of a session, newest first.",
    "show": "Show a checkpoint and its state.",
    "save": "Save a state, given as JSON, to a session.",
    "snap": "Take a snapshot of a directory's files.",
    "diff": "Show the differences of two checkpoints: state and files.",
    "compare": "Compare two sessions since their common ancestor.",
    "bisect": "Find the first bad checkpoint of a session.",
    "replay": "Run a session's program again, on a fork.",
    "events": "Follow new checkpoints, handoffs and messages.",
    "restore": "Restore files, a session's state, or both.",
    "rollback": "Move a session to another checkpoint of its tree.",
    "undo": "Undo the last operation, or a named one.",
    "redo": "Redo the operation undone last, or a named one.",
    "op": "Show the log of operations.",
    "fork": "Start a new session at a checkpoint, with edits or files.",
    "adopt": "Continue a session with the result of its fork.",
    "convert": "Continue a session in another framework.",
    "hook": "Take a snapshot after every tool call of a coding agent.",
    "rewind": "Restore files to a tool call of a coding agent.",
    "watch": "Take snapshots of a directory whenever files change.",
    "handoff": "Hand a checkpoint to another agent.",
    "inbox": "List the handoffs to an agent, oldest first.",
    "claim": "Claim a handoff, exclusively.",
    "release": "Release a claimed handoff.",
    "contract": "List, compare and check contracts.",
    "topics": "List topics, and how far their groups are.",
    "publish": "Publish a message, given as JSON, to a topic.",
    "messages": "Print the messages of a topic.",
    "dead": "List messages that groups have given up.",
    "redeliver": "Deliver a message to a group again.",
    "team": "Show who works on delegated work, and who waits.",
    "cancel": "Cancel a session and the work it delegated.",
    "approvals": "List calls that wait for approval.",
    "approve": "Approve a call: it may be carried out once.",
    "reject": "Reject a call: it is not carried out.",
    "effects": "List effects, or only those with unknown outcome.",
    "resolve": "Record the outcome of an effect.",
    "tag": "Tag a checkpoint, or list tags.",
    "pin": "Pin a checkpoint, or list pins.",
    "expire": "Expire checkpoints: they can no longer be restored.",
    "retain": "Apply a retention policy (a dry run without --yes).",
    "gc": "Collect garbage: remove data that no checkpoint needs.",
    "du": "Show disk usage by session and kind.",
    "export": "Export a store or sessions to one portable file.",
    "import": "Import an exported file, or data of another program.",
    "copy": "Copy a store into another one, of any kind.",
    "encrypt": "Copy a store into a new one that is encrypted.",
    "keys": "Make keys; export and import the key rows of a store.",
    "rekey": "Protect a sealed store with another key.",
    "langgraph": "Set up `langgraph dev`, and list LangGraph's threads.",
    "verify": "Read everything and verify its checksums.",
    "scan": "List the paths of stored secrets, never the values.",
    "migrate": "Check that stored sessions resume with your code.",
    "trust": "Trust a directory's configuration, or list trusted ones.",
    "doctor": "Check the installation and the store.",
    "completion": "Print the completion script of a shell.",
}
# Commands that live in the module of a related one.
SHARED_MODULES = {
    "approve": "approvals",
    "reject": "approvals",
    "inbox": "handoff",
    "claim": "handoff",
    "release": "handoff",
    "compare": "diff",
    "export": "transfer",
    "copy": "transfer",
    "encrypt": "transfer",
    "resolve": "effects",
    "op": "undo",
    "publish": "topics",
    "messages": "topics",
    "dead": "topics",
    "redeliver": "topics",
    "redo": "undo",
    "resume": "runs",
    "retry": "work",
}
COMPLETING = "_HOLDFAST_COMPLETE"  # click's variable: a shell asks what could follow
RUN_PROGRAMS = ("resume", "replay")  # whose errors may be the program's own, and are shown with their traceback
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE
OUTPUT_FAILED = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)  # errors of the output's device


class Commands(CommandGroup):
    """Imports a command when it is called, and turns errors into words and exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - as above
        if cmd_name not in COMMANDS:
            return None
        # A command whose name is a word of Python's own has an underscore after it: `import_`.
        name = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name
        module = importlib.import_module(f"holdfast.cli.commands.{SHARED_MODULES.get(cmd_name, name)}")
        command: click.Command = getattr(module, name)
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

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        arguments = list(args)  # parsing takes words from it
        try:
            ctx = super().make_context(info_name, args, parent, **extra)
        except click.ClickException as error:
            if not wants_json(None, arguments):
                raise
            raise JsonFailure(error) from error
        ctx.meta[ARGUMENTS] = arguments
        return ctx

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except HoldfastError as error:
            print_failure(ctx, error)
            ctx.exit(error.exit_code)
        except click.ClickException as error:
            if not _as_json(ctx):
                raise
            raise JsonFailure(error) from error
        except click.Abort:
            if not _as_json(ctx):
                raise
            print_json_failure("aborted", "nothing was done: the question was not answered", 1)
            ctx.exit(1)
        except KeyboardInterrupt:
            _print_error(ctx, "interrupted", "interrupted", EXIT_INTERRUPTED)
            ctx.exit(EXIT_INTERRUPTED)
        except BrokenPipeError:
            # The reader has gone (`holdfast timeline | head`). Buffered output must not fail again
            # at exit.
            _discard_output()
            ctx.exit(EXIT_BROKEN_PIPE)
        except OSError as error:
            if error.filename is not None and ctx.invoked_subcommand not in RUN_PROGRAMS:
                _print_error(ctx, "system", f"{os.fsdecode(error.filename)!r:.300}: {error.strerror}", 1)
                ctx.exit(1)
            if error.filename is not None or error.errno not in OUTPUT_FAILED:
                raise
            _discard_output()
            _print_error(
                ctx, "output", f"the output can't be written: {error.strerror}. What was asked for may be done", 1
            )
            ctx.exit(1)
        return result


def _as_json(ctx: click.Context) -> bool:
    return wants_json(ctx, ctx.meta.get(ARGUMENTS, []))


def _print_error(ctx: click.Context, kind: str, message: str, exit_code: int) -> None:
    print_words(message, exit_code=exit_code, as_json=_as_json(ctx), kind=kind)


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
    help="Store to use: a SQLite file, a directory of files, or a URL.  [default: HOLDFAST_URL, else the "
    "nearest holdfast.toml or .holdfast/ from here upward]",
)
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    is_eager=True,
    expose_value=False,
    callback=choose_color,
    help="Use colours; auto: on a terminal, unless NO_COLOR is set.",
)
@click.option("--no-pager", is_flag=True, help="Do not page long output.")
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Show the version.")
def cli(store: str | None, no_pager: bool) -> None:
    """Checkpoint store for AI agents: inspect, restore, fork and verify saved sessions.

    \b
    New here?        holdfast demo
    Something saved? holdfast timeline

    \b
    Exit codes: 0 ok, 1 error, 2 usage, 3 not found or expired,
                4 conflict, 5 corrupt, 6 waiting for approval, 130 interrupted.
    """  # noqa: D301 - \b is click's mark for text that must not be rewrapped


def _open_null() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123 - it is open until the process ends


def main() -> None:
    # A stream that was closed (`>&-`) is None: its output is not wanted.
    sys.stdout = sys.stdout or _open_null()
    sys.stderr = sys.stderr or _open_null()
    # Names may hold what the terminal's encoding can't say: that is no reason to fail half-way
    # through a table.
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
