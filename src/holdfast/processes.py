"""Which process this is, and whether another one on this machine still runs."""

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
        started = _started(pid)
        _this = Process(_place(), pid, started) if started is not None else Process("", pid, 0)
    return _this


def has_ended(process: Process) -> bool:
    """Whether it is certain that the process runs no more; False where that can't be told from here."""
    if not process.place or process.place != this_process().place:
        return False
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return _started(process.pid) not in (process.started, None)


def default_holder() -> str:
    """A name for people: who is it that holds a lease?"""
    return f"process {os.getpid()} on {socket.gethostname()}"


def _place() -> str:
    """Empty where the system does not say: only Linux has a boot id, and containers have process tables of their own."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        processes = Path("/proc/self/ns/pid").readlink()
    except OSError:
        return ""
    return hashlib.sha256(f"{socket.gethostname()}\0{boot}\0{processes}".encode()).hexdigest()[:32]


def _started(pid: int) -> int | None:
    """When the process was started, in ticks since boot; -1 for one that has ended and is not yet reaped; None if that
    can't be read."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()  # the name before it may hold anything
    return -1 if fields[0] in (b"Z", b"X") else int(fields[19])
