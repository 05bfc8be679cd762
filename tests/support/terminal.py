"""The command line on a pseudo-terminal."""

import os
import pty
import subprocess
import sys


def on_a_terminal(*args: str, cwd, **environment: str) -> str:
    """What the command prints to a terminal of its own."""
    ours, theirs = pty.openpty()
    child = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", **environment}
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast", *args],
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        cwd=cwd,
        env=child,
    ) as process:
        os.close(theirs)
        out = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # how Linux says that the other end is closed
                break
            if not piece:
                break
            out += piece
        assert process.wait() == 0
    os.close(ours)
    return out.decode()
