"""What is longer than the screen goes through a pager: on a terminal only, and only what ends by itself."""

from __future__ import annotations

import contextlib
import io
import shutil
import sys
from collections.abc import Iterator

import click


class _Screenful(io.StringIO):
    """What was printed so far. It is on its way to the terminal that stdout is, so it is asked as if it were that."""

    def __init__(self, terminal: str) -> None:
        super().__init__()
        self._terminal = terminal

    @property
    def encoding(self) -> str:  # type: ignore[override]  # read-only here: it is the terminal's
        return self._terminal

    def isatty(self) -> bool:
        return True


@contextlib.contextmanager
def paged() -> Iterator[None]:
    """Within the block, stdout is gathered; then it is printed, or shown by a pager if the screen has fewer lines.

    The pager is PAGER, else `less`; `--no-pager` or an empty PAGER does without. What raises is printed as far as it came.
    """
    ctx = click.get_current_context(silent=True)
    if not sys.stdout.isatty() or ctx is None or ctx.find_root().params.get("no_pager") or not _is_wanted():
        yield
        return
    printed = _Screenful(sys.stdout.encoding)
    try:
        with contextlib.redirect_stdout(printed):
            yield
    except BaseException:
        sys.stdout.write(printed.getvalue())
        raise
    text = printed.getvalue()
    if text.count("\n") < shutil.get_terminal_size().lines:
        sys.stdout.write(text)
    else:
        # What is coloured was decided when it was printed.
        click.echo_via_pager(text, color=True)


def _is_wanted() -> bool:
    import os

    return os.environ.get("PAGER") != "" and sys.stdin.isatty()
