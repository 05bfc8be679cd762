"""A command of a shell, with a time limit and bounded output.

It is no sandbox: a command may do what the program may. When it ends, or when its time is up, the
processes of its group are killed, those in the background included.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import time
from contextlib import suppress

from holdfast.errors import EffectNotDoneError

_PIECE = 65536
_PIPE = 1 << 20  # more is in no pipe
_POLL_SECONDS = 0.05  # how late the end of a shell is seen that leaves others with its output


def run_command(command: str, directory: str, seconds: float, characters: int) -> str:
    """Run a command in a directory, and return what it wrote and how it ended.

    Raises `EffectNotDoneError` if it could not be started. A command that fails, or that is killed
    because its time is up, has an outcome like any other: the text says so.
    """
    shell = shutil.which("bash") or "/bin/sh"
    try:
        process = subprocess.Popen(  # noqa: S603 - to run what the model wrote is what the tool is for
            [shell, "-c", command],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise EffectNotDoneError(f"the command could not be started: {error}") from error
    kept = _KeptOutput(characters)
    try:
        is_in_time = _read(process, kept, time.monotonic() + seconds)
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        assert process.stdout is not None
        process.stdout.close()
        process.wait()
    return _describe_end(kept.text(), process.returncode, None if is_in_time else seconds)


def _read(process: subprocess.Popen[bytes], kept: _KeptOutput, deadline: float) -> bool:
    """Read until the shell has ended; False if its time was up before."""
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    os.set_blocking(descriptor, False)
    is_open, left = True, _PIPE
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while time.monotonic() < deadline:
            has_ended = process.poll() is not None  # before the last read: its output is in the pipe by now
            if is_open and selector.select(0 if has_ended else min(_POLL_SECONDS, deadline - time.monotonic())):
                piece = os.read(descriptor, _PIECE)
                kept.add(piece)
                left -= len(piece) if has_ended else 0
                if left <= 0:
                    return True  # processes that inherited its output keep writing
                if not piece:
                    is_open = False
                    selector.unregister(descriptor)
            elif has_ended:
                return True
            elif not is_open:
                time.sleep(_POLL_SECONDS)
    return process.poll() is not None


def _describe_end(output: str, status: int, seconds: float | None) -> str:
    if seconds is not None:
        ending = f"[killed: it took longer than {seconds:g} s]"
    elif status != 0:
        ending = f"[exit code {status}]" if status > 0 else f"[killed by signal {-status}]"
    else:
        ending = "" if output else "[no output]"
    gap = "\n" if output and ending and not output.endswith("\n") else ""
    return output + gap + ending


class _KeptOutput:
    """The beginning and the end of an output, however long it is."""

    def __init__(self, characters: int) -> None:
        self._half = max(1, characters // 2)
        self._head = bytearray()
        self._tail = bytearray()
        self._left_out = 0

    def add(self, piece: bytes) -> None:
        room = self._half - len(self._head)
        self._head += piece[:room]
        self._tail += piece[room:]
        surplus = len(self._tail) - self._half
        if surplus > 0:
            self._left_out += surplus
            del self._tail[:surplus]

    def text(self) -> str:
        if not self._left_out:
            return (self._head + self._tail).decode("utf-8", "replace")
        head, tail = (part.decode("utf-8", "replace") for part in (self._head, self._tail))
        return f"{head}\n[{self._left_out} bytes are left out here]\n{tail}"
