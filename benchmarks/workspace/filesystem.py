"""A file system that nobody has used yet, for the time of a benchmark.

What was deleted a moment ago makes new files slow on ext4 without a journal: for a minute and more
it passes over the inodes that have become free, one by one. After 10,000 deletions a new file takes
680 µs of CPU instead of 35. Whoever comes second would pay for what was tidied up after the first.
"""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

KINDS = {
    "ext4": ["mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
    "ext4-nojournal": ["mkfs.ext4", "-q", "-O", "^has_journal", "-E", "lazy_itable_init=0"],
    "xfs": ["mkfs.xfs", "-q"],
}
HERE = "here"
IMAGE_BYTES = 72 * 10**9  # it takes what is written to it; inodes are made for all of it
SMALL_BYTES = 10**9


@contextlib.contextmanager
def fresh(kind: str, where: Path, size: int = IMAGE_BYTES) -> Iterator[Path]:
    """A directory on a new file system of that kind, which is gone at the end; `where` itself, if none can be made."""
    if kind == HERE:
        yield where
        return
    image, place = where / f"{kind}.image", where / kind
    with contextlib.ExitStack() as undone:
        try:
            undone.callback(image.unlink, missing_ok=True)
            with image.open("wb") as file:
                file.truncate(size)
            _run(*KINDS[kind], str(image))
            place.mkdir(exist_ok=True)
            _run("mount", "-o", "loop", str(image), str(place))
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"  no file system of its own can be made ({error}): {where} is used as it is", file=sys.stderr)
            place = where
        else:
            undone.callback(_run, "umount", str(place))
        yield place


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
