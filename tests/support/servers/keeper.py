"""Supervisor of a server, which ends with its owner: `keeper.py DIRECTORY USER COMMAND…`.

The one who asks holds the other end of this process's standard input. When that end is closed, by the one who asked or
by the kernel after a `kill -9` of it, the server is stopped and its directory removed; after the word `keep` the
directory stays. So nothing is left behind, however a test run ends.

The server's process id is printed when it was started. With a USER other than `-` (root only) the server runs as that
user: PostgreSQL refuses to run as root.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys

STOPPING_SECONDS = 120


def main(directory: str, user: str, command: list[str]) -> None:
    # The terminal's Ctrl-C is for the test run; the end of the pipe tells when to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with open(os.path.join(directory, "log"), "ab") as log:
        server = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=directory,
            user=None if user == "-" else user,
            extra_groups=None if user == "-" else [],
        )
    print(server.pid, flush=True)
    word = sys.stdin.buffer.read()
    if server.poll() is None:
        server.send_signal(signal.SIGINT if b"postgres" in os.fsencode(command[0]) else signal.SIGTERM)
    try:
        server.wait(STOPPING_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    if b"keep" not in word:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
