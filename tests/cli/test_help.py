"""Help texts are part of the product: they change on purpose only.

HOLDFAST_UPDATE_SNAPSHOTS=1 pytest tests/cli/test_help.py    writes them again.
"""

import os
from pathlib import Path

import click
import pytest
from stores import python

from holdfast import __version__
from holdfast.cli.main import COMMANDS, cli

SNAPSHOTS = Path(__file__).with_name("snapshots")


@pytest.mark.parametrize(
    "command",
    [
        "",
        *COMMANDS,
        "import file",
        "import checkpnt",
        "import langgraph-sqlite",
        "import langgraph-postgres",
        "import providerprotocol",
        "contract list",
        "contract show",
        "contract diff",
        "contract check",
        "langgraph init",
        "langgraph threads",
        "op log",
    ],
)
def test_help_is_as_it_was(run, command):
    result = run(*command.split(), "--help")
    assert result.exit_code == 0
    snapshot = SNAPSHOTS / f"{command.replace(' ', '-') or 'holdfast'}.txt"
    if os.environ.get("HOLDFAST_UPDATE_SNAPSHOTS"):
        snapshot.write_text(result.stdout)
    assert result.stdout == snapshot.read_text()


def test_version(run):
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"holdfast {__version__}\n")


@pytest.mark.parametrize("args", [["nonsense"], ["timeline", "--nonsense"], ["show"], ["timeline", "-n", "-1"]])
def test_wrong_usage_exits_with_2(run, args):
    result = run(*args)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Usage:" in result.stderr


def test_every_command_speaks_json(run):
    for command in COMMANDS:
        assert "--json" in run(command, "--help").stdout


def test_the_list_of_commands_says_what_they_say_themselves():
    context = click.Context(cli)
    for name, said in COMMANDS.items():
        command = cli.get_command(context, name)
        assert command is not None
        assert command.short_help == said


def test_help_loads_neither_a_client_nor_any_command():
    done = python("""
        import sys
        from holdfast.cli.main import cli
        cli(["--help"], standalone_mode=False)
        heavy = ("asyncio", "sqlite3", "rich", "ormsgpack", "zstandard", "holdfast.client", "holdfast.cli.commands.")
        print([name for name in sys.modules if name.startswith(heavy)], file=sys.stderr)
    """)
    assert done.stderr == "[]\n"
    assert "timeline" in done.stdout


@pytest.mark.parametrize("command", ["timeline", "show", "sessions", "du"])
def test_commands_load_nothing_of_a_terminal_or_an_event_loop_where_there_is_none(made, command):
    done = python(f"""
        import sys
        from holdfast.cli.main import cli
        words = [{command!r}, *(["main"] if {command!r} == "show" else [])]
        cli(["--store", {str(made.path)!r}, *words], standalone_mode=False)
        print([name for name in sys.modules if name.startswith(("asyncio", "rich"))], file=sys.stderr)
    """)
    assert done.stderr.endswith("[]\n")
