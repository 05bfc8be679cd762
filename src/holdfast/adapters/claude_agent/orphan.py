"""Processes of the CLI that outlive the program that has started them.

A killed program leaves its CLI behind. The CLI continues: it finishes the tool that is running, and
asks the model what to do next. Before a turn continues, the next life ends what the last one left.
A process is known by a variable of its environment; this works on Linux.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from holdfast.adapters.base.digest import digest

VARIABLE = "HOLDFAST_CLAUDE_SESSION"
LONGEST_END = 5.0  # seconds
_PROCESSES = Path("/proc")


def mark_session(location: str, session_id: str) -> dict[str, str]:
    """Return the variable that marks the processes which this one starts for a session."""
    return {VARIABLE: f"{digest([location, session_id])}:{os.getpid()}"}


def end_orphans(location: str, session_id: str) -> int:
    """End the processes that a dead program has left for a session; return how many there were."""
    if not hasattr(os, "pidfd_open"):
        return 0
    mark = digest([location, session_id])
    own = set(_ancestors(os.getpid()))
    ended = [pid for pid in _pids() if pid not in own and _end_if_orphan(pid, mark)]
    deadline = time.monotonic() + LONGEST_END
    while any(_read_owner(pid, mark) for pid in ended) and time.monotonic() < deadline:
        time.sleep(0.01)
    return len(ended)


def _end_if_orphan(pid: int, mark: str) -> bool:
    """Kill a process that has the mark, and whose owner is none of its ancestors."""
    with suppress(OSError):
        process = os.pidfd_open(pid)  # first: the number may be another process's by the time of the signal
        try:
            owner = _read_owner(pid, mark)
            if owner is None or owner in _ancestors(pid):
                return False
            signal.pidfd_send_signal(process, signal.SIGKILL)
            return True
        finally:
            os.close(process)
    return False


def _read_owner(pid: int, mark: str) -> int | None:
    """Return the process that has started this one for the marked session."""
    with suppress(OSError, ValueError):
        for line in (_PROCESSES / str(pid) / "environ").read_bytes().split(b"\0"):
            name, _, value = line.decode("utf-8", "replace").partition("=")
            if name == VARIABLE and value.startswith(f"{mark}:"):
                return int(value.rpartition(":")[2])
    return None


def _pids() -> list[int]:
    with suppress(OSError):
        return [int(path.name) for path in _PROCESSES.iterdir() if path.name.isdigit()]
    return []


def _ancestors(pid: int) -> Iterator[int]:
    """Yield a process and its ancestors."""
    while pid > 0:
        yield pid
        try:
            # The name in parentheses may have any character: the parent is the second field after the last one.
            pid = int((_PROCESSES / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return
