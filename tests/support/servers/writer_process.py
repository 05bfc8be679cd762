"""Writer processes and their output: a line per save, `[id, session, step]` or `[null, session, why]`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

PATIENCE = 240.0


class WriterProcess:
    """Speaks into a file of its own, which a kill leaves whole."""

    def __init__(self, program: Path, folder: Path, *arguments: str) -> None:
        self._said = folder / f"{arguments[-1]}.said"
        self._errors = folder / f"{arguments[-1]}.errors"
        with self._said.open("wb") as output, self._errors.open("wb") as errors:
            self._process = subprocess.Popen([sys.executable, str(program), *arguments], stdout=output, stderr=errors)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def said(self) -> list[list[str]]:
        return [json.loads(line) for line in self._said.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]

    def acknowledged(self) -> list[str]:
        return [line[0] for line in self.said() if line[0]]

    def wait_for_saves(self, count: int) -> None:
        """Until so many more have returned."""
        self._wait_for_more(self.acknowledged, count)

    def wait_for_attempts(self, count: int) -> None:
        """Until so many more have returned or failed."""
        self._wait_for_more(self.said, count)

    def _wait_for_more(self, said: Callable[[], list[Any]], count: int) -> None:
        wanted = len(said()) + count
        deadline = time.monotonic() + PATIENCE
        while len(said()) < wanted:
            assert self._process.poll() is None, f"it ended by itself: {self._errors.read_text()[-2000:]}"
            assert time.monotonic() < deadline, f"it stands still, and says {self.said()[-2:]}"
            time.sleep(0.02)
