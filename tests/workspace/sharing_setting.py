"""Settings under which small trees, too, are restored by several processes."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from holdfast.workspace import carrying_out, sharing, workers

PATIENCE = 60.0
PROCESSORS = 6  # for two workers, and the one that restores
FILES_AT_ONCE = 4


class Prompt(workers.Workers[Any]):
    """Workers that are waited for when they start: a small restore would be over before they have. `taken` counts what they
    were given."""

    taken = 0

    def __init__(self, job: ModuleType, setup: object, descriptors: Sequence[int], count: int) -> None:
        super().__init__(job, setup, descriptors, count)
        deadline = time.monotonic() + PATIENCE
        while not all(one.has_room or one._is_dead for one in self._workers):
            assert time.monotonic() < deadline, "the workers did not start within a minute"
            time.sleep(0.002)

    def take(self, request: object, portion: Any) -> bool:
        taken = super().take(request, portion)
        type(self).taken += taken
        return taken


SETTINGS: tuple[tuple[ModuleType, str, object], ...] = (
    (sharing, "LEAST_FILES", 1),
    (carrying_out, "PORTION_ACTIONS", FILES_AT_ONCE),
    (workers, "usable_processors", lambda: PROCESSORS),
    (workers, "Workers", Prompt),
)


def set_for_good() -> None:
    """For a process of its own."""
    for module, name, value in SETTINGS:
        setattr(module, name, value)


def fill(root: Path, files: int = 160) -> None:
    """Some directories of small files, and whatever else there is."""
    root.mkdir(exist_ok=True)
    for number in range(files):
        file = root / f"d{number % 10}" / f"e{number % 3}" / f"f{number:04}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(f"line {number} of a file\n".encode() * (number % 50))
        file.chmod((0o644, 0o600, 0o444, 0o755, 0o4711)[number % 5])
    (root / "top").write_bytes(b"at the top")
    (root / "large").mkdir()
    (root / "large" / "chunked").write_bytes(b"a line\n" * 200_000)
    (root / "d1" / "link").symlink_to("../top")
    (root / "private").mkdir()
    (root / "private" / "key").write_bytes(b"a key")
    (root / "private").chmod(0o500)
    (root / "shared").mkdir()
    (root / "shared").chmod(0o2775)


def empty(root: Path) -> None:
    for path in root.iterdir():
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)
            shutil.rmtree(path)
        else:
            path.unlink()
