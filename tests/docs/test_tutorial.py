"""The tutorial, replayed: exactly its commands, in a directory with nothing but the examples, print
what it says they print."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from snippets import ROOT, snippets

DOCUMENT = ROOT / "docs" / "tutorial.md"
FAILING = {"python examples/expenses.py run report": 1}  # it is about an agent that fails


class Shown(NamedTuple):
    command: str
    output: list[str]


def shown() -> list[Shown]:
    """The commands that stand behind a `$`, each with the lines that the page says it prints."""
    found: list[Shown] = []
    for snippet in snippets(DOCUMENT, "console"):
        for line in snippet.code.splitlines():
            if line.startswith("$ "):
                found.append(Shown(line.removeprefix("$ "), []))
            else:
                found[-1].output.append(line)
    return found


def is_said(pattern: str, printed: str) -> bool:
    """Whether a line was printed as the page has it, `…` standing for anything, and spaces for any number of them."""
    words = [re.escape(word).replace("…", ".*") for word in pattern.split()]
    return re.search(r"^\s*" + r"\s+".join(words) + r"\s*$", printed, re.MULTILINE) is not None


def test_it_takes_fewer_than_fifteen_commands_with_getting_it():
    [setup] = [snippet.code.splitlines() for snippet in snippets(DOCUMENT, "") if "make demo" in snippet.code]
    assert len(setup) + len(shown()) < 15


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_its_commands_print_what_it_says(tmp_path: Path):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    environment = {name: value for name, value in os.environ.items() if name not in ("HOLDFAST_URL", "NO_COLOR")}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    heads = []
    for command, output in shown():
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == FAILING.get(command, 0), f"{command}\n{done.stdout}"
        for line in output:
            assert is_said(line, done.stdout), f"{command}\ndid not print: {line}\nbut:\n{done.stdout}"
        heads.append(head(tmp_path))
    # All of it is undone: the session stands where its agent left it.
    assert heads[-1] == heads[0]
    assert heads[0] not in heads[-4:-2]


def head(directory: Path) -> str:
    from holdfast import SyncClient

    with SyncClient.sqlite(directory / ".holdfast" / "store.db") as client:
        session = client.session("report")
    assert session is not None
    return session.head.checkpoint_id
