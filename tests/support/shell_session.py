"""Shell sessions in the docstrings of examples: commands and their output.

    $ python examples/frameworks/crewai_agent.py
    paying invoice 7
    [killed]
    $ holdfast approvals
    ...archive...

Within a line, `...` stands for any text; a line of `...` alone for any lines. A last line `[killed]` or `[exit 6]`
says how the command ends; without it, it ends with 0. The word `ID` stands for the approval that waits.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from paths import ROOT

_BLOCK = re.compile(r"^    \$ .*(?:\n(?:    .*)?)*", re.MULTILINE)
_ENDING = re.compile(r"\[(?:killed|exit (\d+))\]")


class Command(NamedTuple):
    words: list[str]
    printed: list[str]
    status: int


def read_commands(text: str) -> list[Command]:
    """Return the commands of all sessions in a text, in their order."""
    commands: list[Command] = []
    for block in _BLOCK.findall(text):
        for part in re.split(r"^\$ ", textwrap.dedent(block), flags=re.MULTILINE)[1:]:
            command, *printed = part.rstrip().splitlines()
            ending = _ENDING.fullmatch(printed[-1]) if printed else None
            status = 0 if ending is None else int(ending[1] or -9)
            commands.append(Command(shlex.split(command), printed[: -1 if ending else None], status))
    return commands


def run_commands(commands: list[Command], directory: Path, environment: Mapping[str, str]) -> None:
    """Run commands one after the other in a directory; check what they print, and how they end."""

    def run(words: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *_arguments(words)], cwd=directory, env=dict(environment), capture_output=True, text=True,
            encoding="utf-8", timeout=240, check=False,
        )  # fmt: skip

    for words, printed, status in commands:
        if "ID" in words:
            [waiting] = json.loads(run(["holdfast", "approvals", "--json"]).stdout)["approvals"]
            words[words.index("ID")] = waiting["short_id"]
        done = run(words)
        said = f"$ {shlex.join(words)}\n{done.stdout}[exit {done.returncode}]\n{done.stderr}"
        assert done.returncode == status, said
        assert "HoldfastWarning" not in done.stderr, said
        assert re.fullmatch(_pattern(printed), done.stdout.rstrip("\n")), f"{said}\nwanted:\n" + "\n".join(printed)


def _arguments(words: list[str]) -> list[str]:
    match words:
        case ["holdfast", *rest]:
            return ["-m", "holdfast", *rest]
        case ["python", path, *rest] if (ROOT / path).is_file():
            return [str(ROOT / path), *rest]
    raise AssertionError(f"not a command of an example: {shlex.join(words)}")


def _pattern(printed: list[str]) -> str:
    lines = [r"[\s\S]*" if line == "..." else ".*".join(map(re.escape, line.split("..."))) for line in printed]
    return "\n".join(lines)
