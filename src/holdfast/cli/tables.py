"""Tables: with rich on a terminal, which fits them to its width; as plain aligned columns anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from typing import Literal

from holdfast.cli.colors import no_color
from holdfast.cli.printable import width

GAP = "  "
LONGEST_KEPT = 40  # columns of a cell that must not be shortened; longer ones are folded


def print_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[str] = (), shrinks: Collection[str] = ()
) -> None:
    """Prints rows of cells that are safe to print (see `printable`). The columns named in `right` are numbers; those
    in `shrinks` give way where the terminal is narrow: ids and times are never cut."""
    if sys.stdout.isatty():
        _print_rich(header, rows, right, shrinks)
    else:
        sys.stdout.write(plain_table(header, rows, right=right))


def plain_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[str] = ()) -> str:
    numbers = [column for column, title in enumerate(header) if title in right]
    return "".join(f"{line}\n" for line in aligned([header, *rows], numbers))


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Lines whose cells stand below each other."""
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = []
        for column, (cell, columns) in enumerate(zip(row, widths, strict=True)):
            blanks = " " * (columns - width(cell))
            cells.append(blanks + cell if column in right else cell + blanks)
        lines.append(GAP.join(cells).rstrip())
    return lines


def _print_rich(
    header: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str], shrinks: Collection[str]
) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    style = "" if no_color() else "bold"
    table = Table(box=None, pad_edge=False, padding=(0, len(GAP), 0, 0), header_style=style)
    for number, title in enumerate(header):
        justify: Literal["right", "left"] = "right" if title in right else "left"
        if title in shrinks:
            table.add_column(title, justify=justify, no_wrap=True, overflow="ellipsis")
        else:
            longest = max((width(row[number]) for row in rows), default=0)
            table.add_column(title, justify=justify, overflow="fold", min_width=min(longest, LONGEST_KEPT))
    for row in rows:
        # Text, not str: brackets in a name are not markup.
        table.add_row(*(Text(cell) for cell in row))
    Console(highlight=False).print(table)
