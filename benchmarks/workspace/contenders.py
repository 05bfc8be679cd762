"""Tools that snapshot a directory: each is told to, and says what it cost in seconds of wall and of CPU time."""

import os
import resource
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from holdfast import SyncClient
from holdfast.workspace.guards import Limits

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


def allocated(where: Path) -> int:
    """The bytes on disk, by blocks."""
    return sum(
        (Path(directory) / name).lstat().st_blocks * 512 for directory, _, names in os.walk(where) for name in names
    )


class Contender:
    name = ""

    def __init__(self, root: Path, store: Path) -> None:
        self.root = root
        self.store = store

    def open(self) -> None: ...

    def snapshot(self) -> None: ...

    def close(self) -> None: ...

    def reopen(self) -> None: ...


class Git(Contender):
    """A shadow repository, as coding agents keep one: `add -A`, `write-tree`."""

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

    def snapshot(self) -> None:
        self._git("add", "-A")
        self._git("write-tree")

    def _git(self, *arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=self.root, env=self.environment, check=True, capture_output=True)


class TunedGit(Git):
    name = "git, tuned"
    settings = (("feature.manyFiles", "true"), ("index.version", "4"), ("core.untrackedCache", "true"))


class Restic(Contender):
    name = "restic"

    def open(self) -> None:
        self.environment = {"PATH": os.environ["PATH"], "RESTIC_PASSWORD": "x", "RESTIC_REPOSITORY": str(self.store),
                            "XDG_CACHE_HOME": f"{self.store}-cache"}  # fmt: skip
        self._restic("init")

    def snapshot(self) -> None:
        self._restic("backup", "-q", ".")

    def _restic(self, *arguments: str) -> None:
        subprocess.run(["restic", *arguments], cwd=self.root, env=self.environment, check=True, capture_output=True)


class Borg(Contender):
    name = "borg"
    count = 0

    def open(self) -> None:
        self.environment = {"PATH": os.environ["PATH"], "BORG_BASE_DIR": f"{self.store}-base",
                            "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes"}  # fmt: skip
        self._borg("init", "--encryption=none", str(self.store))

    def snapshot(self) -> None:
        self.count += 1
        self._borg("create", f"{self.store}::{self.count}", ".")

    def _borg(self, *arguments: str) -> None:
        subprocess.run(["borg", *arguments], cwd=self.root, env=self.environment, check=True, capture_output=True)


class Holdfast(Contender):
    """The sound walk."""

    name = "holdfast"
    watch = False

    def open(self) -> None:
        self.client = SyncClient.sqlite(self.store / "store.db")
        self.workspace = self.client.workspace(
            self.root, default_excludes=False, watch=self.watch, limits=Limits(min_free_bytes=0)
        )

    def snapshot(self) -> None:
        assert self.workspace.snapshot().snapshot.tree is not None

    def close(self) -> None:
        self.workspace.close()
        self.client.close()

    def reopen(self) -> None:
        self.open()
        self.snapshot()  # a process that goes on has looked once


class Watching(Holdfast):
    name = "holdfast, watching"
    watch = True


def installed() -> list[type[Contender]]:
    tools: list[tuple[str, type[Contender]]] = [("restic", Restic), ("borg", Borg)]
    return [Git, TunedGit, Holdfast, Watching, *(kind for tool, kind in tools if shutil.which(tool))]
