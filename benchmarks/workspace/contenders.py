"""Tools that snapshot a directory: each is told to, and says what it cost in seconds of wall and of CPU time."""

import contextlib
import os
import resource
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from holdfast import SyncClient
from holdfast.workspace.limits import WorkspaceLimits
from holdfast.workspace.sync import SyncWorkspace

Cost = tuple[float, float]  # wall, CPU


def measured(call: Callable[[], object]) -> Cost:
    """What a call takes, with the processes that it starts."""
    before = _cpu()
    start = time.perf_counter()
    call()
    return time.perf_counter() - start, _cpu() - before


def _cpu() -> float:
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, who))


def kernel_time() -> float:
    """The part of the CPU time so far that the kernel took for this process and those that it has started."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(usage.ru_stime for usage in map(resource.getrusage, who))


def allocated(where: Path) -> int:
    """The bytes on disk, by blocks."""
    return sum(
        (Path(directory) / name).lstat().st_blocks * 512 for directory, _, names in os.walk(where) for name in names
    )


class Contender:
    """`snapshot` gives what names the snapshot. `restore` puts the directory back to one, in place;
    `restore_into` makes it anew in an empty directory. One that `is_slow` is asked less often, and
    not to restore in place."""

    name = ""
    is_slow = False

    def __init__(self, root: Path, store: Path) -> None:
        self.root = root
        self.store = store

    def open(self) -> None: ...

    def snapshot(self) -> str:
        raise NotImplementedError  # each contender has its own

    def restore(self, snapshot: str) -> None:
        raise NotImplementedError  # each contender has its own

    def restore_into(self, snapshot: str, directory: Path) -> None:
        raise NotImplementedError  # each contender has its own

    def close(self) -> None: ...

    def reopen(self) -> None: ...

    def unused(self) -> int:
        """Of what it has on disk, what it will write to before it takes more."""
        return 0


class Git(Contender):
    """A shadow repository, as coding agents keep one: `add -A`, `write-tree`; `read-tree --reset
    -u`, `clean` to go back. It takes no safety snapshot."""

    name = "git"
    settings: tuple[tuple[str, str], ...] = ()

    def open(self) -> None:
        self.environment = {
            "PATH": os.environ["PATH"], "GIT_DIR": str(self.store), "GIT_WORK_TREE": str(self.root),
            "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null",
        }  # fmt: skip
        subprocess.run(["git", "init", "-q", "--bare", self.store], check=True, capture_output=True)
        for name, value in (("core.bare", "false"), *self.settings):
            self._git("config", name, value)

    def snapshot(self) -> str:
        self._git("add", "-A")
        return self._git("write-tree")

    def restore(self, snapshot: str) -> None:
        self._git("read-tree", "--reset", "-u", snapshot)
        self._git("clean", "-fdq")

    def restore_into(self, snapshot: str, directory: Path) -> None:
        index = self.store.with_name(f"{self.store.name}-index")
        index.unlink(missing_ok=True)
        there = {"GIT_INDEX_FILE": str(index), "GIT_WORK_TREE": str(directory)}
        self._git("read-tree", "--reset", "-u", snapshot, cwd=directory, **there)

    def _git(self, *arguments: str, cwd: Path | None = None, **more: str) -> str:
        environment = self.environment | more
        command = ["git", *arguments]
        done = subprocess.run(
            command, cwd=cwd or self.root, env=environment, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()


class TunedGit(Git):
    name = "git, tuned"
    settings = (("feature.manyFiles", "true"), ("index.version", "4"), ("core.untrackedCache", "true"))


class Restic(Contender):
    name = "restic"
    is_slow = True

    def open(self) -> None:
        self.environment = {"PATH": os.environ["PATH"], "RESTIC_PASSWORD": "x", "RESTIC_REPOSITORY": str(self.store),
                            "XDG_CACHE_HOME": f"{self.store}-cache"}  # fmt: skip
        self._restic("init")

    def snapshot(self) -> str:
        self._restic("backup", "-q", ".")
        return "latest"

    def restore_into(self, snapshot: str, directory: Path) -> None:
        self._restic("restore", "-q", snapshot, "--target", str(directory))

    def _restic(self, *arguments: str) -> None:
        subprocess.run(["restic", *arguments], cwd=self.root, env=self.environment, check=True, capture_output=True)


class Borg(Contender):
    name = "borg"
    is_slow = True
    count = 0

    def open(self) -> None:
        self.environment = {"PATH": os.environ["PATH"], "BORG_BASE_DIR": f"{self.store}-base",
                            "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes"}  # fmt: skip
        self._borg("init", "--encryption=none", str(self.store))

    def snapshot(self) -> str:
        self.count += 1
        self._borg("create", f"{self.store}::{self.count}", ".")
        return str(self.count)

    def restore_into(self, snapshot: str, directory: Path) -> None:
        self._borg("extract", f"{self.store}::{snapshot}", cwd=directory)

    def _borg(self, *arguments: str, cwd: Path | None = None) -> None:
        subprocess.run(
            ["borg", *arguments], cwd=cwd or self.root, env=self.environment, check=True, capture_output=True
        )


class Holdfast(Contender):
    """The sound walk. Its restores begin with a safety snapshot, and end with a look at what was written."""

    name = "holdfast"
    watch = False

    def open(self) -> None:
        self.client = SyncClient.sqlite(self.store / "store.db")
        self.workspace = self._workspace(self.root, watch=self.watch)

    def snapshot(self) -> str:
        taken = self.workspace.snapshot()
        assert taken.snapshot.tree is not None
        return taken.checkpoint_id

    def restore(self, snapshot: str) -> None:
        self.workspace.restore(snapshot)

    def restore_into(self, snapshot: str, directory: Path) -> None:
        self._workspace(directory).restore(snapshot)

    def close(self) -> None:
        self.workspace.close()
        self.client.close()

    def reopen(self) -> None:
        self.open()
        self.snapshot()  # a process that goes on has looked once

    def unused(self) -> int:
        with contextlib.closing(sqlite3.connect(self.store / "store.db")) as connection:
            [free], [size] = (
                connection.execute(f"PRAGMA {name}").fetchone() for name in ("freelist_count", "page_size")
            )
            return int(free * size)

    def _workspace(self, directory: Path, *, watch: bool = False) -> SyncWorkspace:
        return self.client.workspace(
            directory, default_excludes=False, watch=watch, limits=WorkspaceLimits(min_free_bytes=0)
        )


class Watching(Holdfast):
    name = "holdfast, watching"
    watch = True


def installed() -> list[type[Contender]]:
    tools: list[tuple[str, type[Contender]]] = [("restic", Restic), ("borg", Borg)]
    return [Git, TunedGit, Holdfast, Watching, *(kind for tool, kind in tools if shutil.which(tool))]
