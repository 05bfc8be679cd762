"""Log of a killed program's calls: one line per call of its model or of a tool, one file per name.

A program calls `log_call` at the beginning of each call, before the call has any effect. No store, rollback or
kill takes a line back: a call that was made twice has two lines.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

ENDING = ".calls"
after_call: Callable[[], None] = lambda: None  # noqa: E731 - replaced where a program is killed within a call


def log_call(directory: str | os.PathLike[str], name: str, *details: Any) -> None:
    """Append a line to the file of that name. The details tell one call from another: arguments, or the turn."""
    line = json.dumps(details, sort_keys=True).encode() + b"\n"
    file = os.open(Path(directory, name + ENDING), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line)
    finally:
        os.close(file)
    after_call()


def read_calls(directory: Path) -> dict[str, list[str]]:
    """Return the lines of each name, in their order."""
    return {path.name[: -len(ENDING)]: path.read_text().splitlines() for path in sorted(directory.glob(f"*{ENDING}"))}
