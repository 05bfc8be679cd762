"""Process identity: this process, and whether another one on this machine still runs."""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path

from holdfast.model.lease import Process

_this: Process | None = None


def this_process() -> Process:
    global _this  # noqa: PLW0603 - read once in a process, again in a forked child
    if _this is None or _this.pid != os.getpid():
        pid = os.getpid()
        started = _read_start_time(pid)
        _this = Process(_place(), pid, started) if started is not None else Process("", pid, 0)
    return _this


def has_ended(process: Process) -> bool:
    """Return whether the process has certainly ended; False if that is unknown here."""
    if not process.place or process.place != this_process().place:
        return False
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return _read_start_time(process.pid) not in (process.started, None)


def default_holder() -> str:
    """Return the holder of a lease, named for people."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def _place() -> str:
    """Return the machine and process table of this process; empty except on Linux, which has a boot id."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        processes = Path("/proc/self/ns/pid").readlink()
    except OSError:
        return ""
    return hashlib.sha256(f"{socket.gethostname()}\0{boot}\0{processes}".encode()).hexdigest()[:32]


def _read_start_time(pid: int) -> int | None:
    """Return the start time of a process in ticks since boot, or None if it can't be read.

    It is -1 for a process that has ended and is not yet reaped. One whose first thread has ended
    may still have others: a killed thread ends its system call first, such as a write.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()  # the name before it may hold anything
    threads = int(fields[17])
    return -1 if fields[0] in (b"Z", b"X") and threads <= 1 else int(fields[19])
