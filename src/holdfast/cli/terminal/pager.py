"""A pager for output longer than the screen, on a terminal only, if the output ends by itself."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import PurePath

import click

from holdfast.cli.terminal.sanitize import measure_width

LESS = "FRX"  # as git: end at once if it fits, pass colours through, leave the text on the screen
COLORED = ("more", "cat", "bat", "lv")  # pagers that show colours by default
_WITH_TEXT = frozenset('bDhjkoOpPtTxyz"#')  # options of less whose value follows in the same word


class _Screenful(io.StringIO):
    """The output so far. It is bound for the terminal of stdout, so it answers as that terminal would."""

    def __init__(self, terminal: str) -> None:
        super().__init__()
        self._terminal = terminal

    @property
    def encoding(self) -> str:  # type: ignore[override]  # read-only here: it is the terminal's
        return self._terminal

    def isatty(self) -> bool:
        return True


@contextlib.contextmanager
def page_output() -> Iterator[None]:
    """Collect stdout within the block, then print it, or page it if it is longer than the screen.

    The pager is PAGER, else `less`; `--no-pager` or an empty PAGER does without. If the block
    raises, the output so far is printed. A pager that would show escape sequences as text gets
    none.
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
    if _fits(text):
        sys.stdout.write(text)
    else:
        with _less_options():
            click.echo_via_pager(text, color=_passes_colors())


def _fits(text: str) -> bool:
    """Return whether the text fits the screen; a long line, such as a session's name, takes several lines."""
    screen = shutil.get_terminal_size()
    if text.count("\n") >= screen.lines:
        return False
    plain = click.unstyle(text).splitlines()
    return sum(max(1, -(-measure_width(line) // screen.columns)) for line in plain) < screen.lines


@contextlib.contextmanager
def _less_options() -> Iterator[None]:
    """LESS, and LV of the pager `lv`, as git sets them where the user has not."""
    added = {name: value for name, value in (("LESS", LESS), ("LV", "-c")) if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def _passes_colors() -> bool:
    """Return whether the pager shows colours as colours. `--color always` says that it does."""
    ctx = click.get_current_context(silent=True)
    if ctx is not None and ctx.find_root().color:
        return True
    words = _words(os.environ.get("PAGER") or "less")
    program = PurePath(words[0]).stem.casefold() if words else ""
    if program != "less":
        return program in COLORED
    return any(map(_is_raw, [*_words(os.environ.get("LESS", "")), *words[1:]]))


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quotation mark without its other half
        return text.split()


def _is_raw(option: str) -> bool:
    """Return whether a word of less's options has -R or -r. In LESS the dash may be missing."""
    if option.startswith("--"):
        return option[2:].casefold() == "raw-control-chars"
    for letter in option:
        if letter in "rR":
            return True
        if letter in _WITH_TEXT:
            break
    return False


def _is_wanted() -> bool:
    return os.environ.get("PAGER") != "" and sys.stdin.isatty()
