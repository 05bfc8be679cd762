"""A real server, on a free port of the loopback interface, in a temporary directory, for one test run."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

KEEPER = Path(__file__).with_name("keeper.py")
STARTING_SECONDS = 240
PORTS = range(20_000, 32_000)
OTHER_USER = "nobody"  # whom root lets its servers run as


class ServerUnavailable(Exception):  # noqa: N818 - a reason to skip tests, not a failure
    """Says why there is no server of that kind here."""


def free_port() -> int:
    """A port that stays this process's, also while its server is down: below those that the kernel
    gives to whoever asks for any. Test runs tell each other by holding the UDP port of the same
    number, which no server of ours uses."""
    for port in random.sample(PORTS, len(PORTS)):
        with socket.socket(type=socket.SOCK_DGRAM) as held, socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: a connection may linger
            try:
                held.bind(("127.0.0.1", port))
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            held.detach()  # open for as long as this process lives
            return port
    raise ServerUnavailable(f"no port from {PORTS[0]} to {PORTS[-1]} is free")


def new_directory(kind: str) -> Path:
    """A directory that the server's user may write to."""
    directory = Path(tempfile.mkdtemp(prefix=f"holdfast-{kind}-"))
    give_away(directory)
    return directory


def give_away(path: Path) -> None:
    if os.geteuid() == 0:
        import pwd

        entry = pwd.getpwnam(OTHER_USER)
        os.chown(path, entry.pw_uid, entry.pw_gid)


def server_user() -> str:
    return OTHER_USER if os.geteuid() == 0 else "-"


class Server:
    """A process under a keeper. `stop` ends it; so does the end of this process, however that comes."""

    def __init__(self, command: list[str], directory: Path, port: int) -> None:
        self.command = command
        self.directory = directory
        self.port = port
        self.pid = 0
        self._keeper: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        self._keeper = subprocess.Popen(
            [sys.executable, "-S", str(KEEPER), str(self.directory), server_user(), *self.command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._keeper.stdout is not None
        printed = self._keeper.stdout.readline()
        if not printed:
            raise ServerUnavailable(f"{self.command[0]} can't be started")
        self.pid = int(printed)
        self._wait_for_port()

    def stop(self, *, keep: bool = False) -> None:
        """Stops it gently. With `keep` its directory stays, and it can be started again."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.communicate(b"keep" if keep else b"")
        elif not keep:  # it was killed, and never started again
            shutil.rmtree(self.directory, ignore_errors=True)

    def kill(self) -> None:
        """`kill -9`; what it kept stays, and it can be started again."""
        os.kill(self.pid, signal.SIGKILL)
        self.stop(keep=True)

    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")[-3000:]

    def _wait_for_port(self) -> None:
        deadline = time.monotonic() + STARTING_SECONDS
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                if not _is_alive(self.pid):
                    break
                time.sleep(0.02)
        said = self.log()
        self.stop()
        raise ServerUnavailable(f"{Path(self.command[0]).name} did not start:\n{said}")


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # the second, if it ends while we read
        return not Path("/proc/self").exists()  # no /proc: take it for alive, the deadline will tell
    return state != "Z"
