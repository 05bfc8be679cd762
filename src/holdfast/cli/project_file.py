"""Settings of other programs in a project: regular files within it only, as it may be a stranger's."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from holdfast.errors import UsageError


def refuse_odd_file(path: Path, project: Path, *, remedy: str = "") -> None:
    """Raise `UsageError` if a file leads out of its project, or is none: a FIFO would make a reader wait.

    A link out of the project would let its author choose the file that is changed.
    """
    target = Path(os.path.realpath(path))
    if not target.is_relative_to(os.path.realpath(project)):
        raise UsageError(f"{path} leads out of the project, to {target}: nothing was changed. Put a file there{remedy}")
    try:
        mode = target.stat().st_mode
    except OSError:  # missing: what reads it says so
        return
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise UsageError(f"{path} is no regular file: nothing was changed. Put a file there{remedy}")
