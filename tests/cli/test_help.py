"""Help texts are part of the product: they change on purpose only.

HOLDFAST_UPDATE_SNAPSHOTS=1 pytest tests/cli/test_help.py    writes them anew.
"""

import os
from pathlib import Path

import pytest

from holdfast import __version__
from holdfast.cli.main import COMMANDS

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
        "langgraph init",
        "langgraph threads",
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
