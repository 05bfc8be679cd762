"""Process that edits a directory, takes snapshots and restores them until it is killed.

    python restore_process.py STORE ROOT [careless]

Each line that it reads is a seed: it forks a child, which has everything imported already, and
works by that seed until it is killed. The child says what it is about to do; the parent of both
kills it by the number it said first. A careless one keeps no journal: for seeing that the judge
sees it.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import restore_store
from whole_lines import say

from holdfast.workspace.restore.engine import RestoreEngine

NAMES = ("a", "b", "c", "d", "e")
RESTORING, EDITING, DONE = "restoring", "editing", "done"


def edit(root: Path, rng: random.Random) -> None:
    """A dozen edits of all kinds."""
    for _ in range(12):
        place = root / rng.choice(NAMES)
        if rng.random() < 0.6:
            if place.is_symlink() or not place.is_dir():
                place.unlink(missing_ok=True)
                place.mkdir()
            place = place / rng.choice(NAMES)
        remove(place)
        kind = rng.random()
        if kind < 0.5:
            place.write_bytes(rng.randbytes(rng.choice((0, 10, 5000))))
            place.chmod(rng.choice((0o644, 0o600, 0o755)))
        elif kind < 0.65:
            place.symlink_to(rng.choice(("a", "../b", "/nowhere")))
        elif kind < 0.8:
            place.mkdir()
            (place / "in").write_bytes(rng.randbytes(20))


def remove(place: Path) -> None:
    if place.is_dir() and not place.is_symlink():
        for below in place.iterdir():
            remove(below)
        place.rmdir()
    else:
        place.unlink(missing_ok=True)


def work(store: str, root: Path, seed: str) -> None:
    rng = random.Random(seed)
    directory = restore_store.open_directory(store, root)
    say(EDITING, os.getpid())
    targets = [directory.snapshot()]
    while True:
        for _ in range(3):
            edit(root, rng)
            targets.append(directory.snapshot())
        for _ in range(4):
            now, target = targets[-1], rng.choice(targets[:-1])
            say(RESTORING, restore_store.name(now), restore_store.name(target))
            directory.restore(target, keep="user")
            targets.append(target)
        say(DONE)
        del targets[:-2]


def be_careless() -> None:
    async def written(self: RestoreEngine, journal: object, over: object, logged: object = ()) -> None:
        return None

    RestoreEngine._write = written


def main() -> None:
    store, root = sys.argv[1], Path(sys.argv[2])
    if sys.argv[3:] == ["careless"]:
        be_careless()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                work(store, root, line.strip())
            except BaseException:
                import traceback

                traceback.print_exc()
                os._exit(1)
        os.waitpid(child, 0)
        say("ended")


if __name__ == "__main__":
    main()
