"""A progress bar for long work: on a terminal only, on stderr, removed at the end."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a callback for the done and total counts; None if no terminal shows it."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from holdfast.cli.terminal.color import no_color

    columns = TextColumn(title), BarColumn(), MofNCompleteColumn()
    console = Console(file=sys.stderr, no_color=no_color())
    with Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False) as shown:
        task = shown.add_task(title, total=None)  # until it is known
        yield lambda done, total: shown.update(task, completed=done, total=total)


@contextlib.contextmanager
def counter(unit: str) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a callback for an unknown total: it takes the count so far, and the bytes."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    from holdfast.cli.terminal.color import no_color
    from holdfast.cli.terminal.sanitize import format_bytes

    console = Console(file=sys.stderr, no_color=no_color())
    with console.status(f"0 {unit}") as shown:
        yield lambda count, size: shown.update(f"{count} {unit}, {format_bytes(size)}")
