"""Makes files as `filling` does, and something goes wrong with it: what, the file `odd` says that is beside the root."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from holdfast.workspace import filling


def begin(setup: object, given: Sequence[int]) -> Callable[[Any], Any]:
    fill = filling.begin(setup, given)
    root = given[0]
    said = Path(os.readlink(f"/proc/self/fd/{root}")).with_name("odd")
    count = 0

    def odd(request: Any) -> Any:
        nonlocal count
        count += 1
        frames, places, files = request
        what = said.read_text()
        if what == "full" and count == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), files[0][1])
        if what == "dies half way" and count == 2:
            fill([frames, places, files[: len(files) // 2]])
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "confused half way" and count == 2:
            fill([frames, places, files[: len(files) // 2]])
            raise KeyError(count)
        if what == "swaps":
            # Its directory is moved away, and a link to one outside is there instead.
            os.rename(places[0], places[0] + b".moved", src_dir_fd=root, dst_dir_fd=root)
            os.symlink(os.fsencode(said.with_name("outside")), places[0], dir_fd=root)
        return fill(request)

    return odd
