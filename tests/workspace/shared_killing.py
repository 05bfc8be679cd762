"""A process that restores a directory with workers beside it, until it is killed.

    python shared_killing.py STORE ROOT

The first time it fills the directory and takes a snapshot. Then, for each line that it reads, it forks a child, which empties the
directory, says its number, and restores the snapshot; then it says "done".
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import restore_opening
import sharing_setting
from saying import say

from holdfast.workspace import sharing, workers  # noqa: F401 - before the fork

FILES = 300


def work(store: str, root: Path, saved: str) -> None:
    sharing_setting.set_for_good()
    sharing_setting.empty(root)
    (root / "mine").write_text("made by hand")
    directory = restore_opening.open_directory(store, root)
    say(os.getpid())
    directory.workspace.restore(saved)
    directory.client.close()
    say("done")


def main() -> None:
    store, root = sys.argv[1], Path(sys.argv[2])
    sharing_setting.fill(root, FILES)
    (root / "mine").write_text("made by hand")
    directory = restore_opening.open_directory(store, root)
    saved = directory.snapshot().checkpoint_id
    directory.client.close()
    say(saved)
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                work(store, root, saved)
            except BaseException:
                import traceback

                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        os.waitpid(child, 0)
        say("ended")


if __name__ == "__main__":
    main()
