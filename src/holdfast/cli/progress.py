"""A bar for work that takes long: on a terminal only, on stderr, gone when it is done."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None] | None]:
    """What is to be called with how many are done and how many there are; None where nobody would see it."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from holdfast.cli.colors import no_color

    columns = TextColumn(title), BarColumn(), MofNCompleteColumn()
    console = Console(file=sys.stderr, no_color=no_color())
    with Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False) as shown:
        task = shown.add_task(title, total=None)  # until it is known
        yield lambda done, total: shown.update(task, completed=done, total=total)


@contextlib.contextmanager
def counter(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """The same where nobody knows how many there are: it is told the number so far, and the bytes."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    from holdfast.cli.colors import no_color
    from holdfast.cli.printable import byte_count

    console = Console(file=sys.stderr, no_color=no_color())
    with console.status(f"0 {what}") as shown:
        yield lambda count, size: shown.update(f"{count} {what}, {byte_count(size)}")
