"""Tables: fitted to the width of a terminal; as plain aligned columns anywhere else."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection, Sequence

from holdfast.cli.colors import no_color
from holdfast.cli.printable import width

GAP = "  "
NARROWEST = 8  # columns that one which gives way keeps


def print_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[str] = (), shrinks: Collection[str] = ()
) -> None:
    """Prints rows of cells that are safe to print (see `printable`). The columns named in `right` are numbers; those
    in `shrinks` give way where the terminal is narrow: ids and times are never cut."""
    if sys.stdout.isatty():
        _print_on_terminal(header, rows, right, shrinks)
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


def _print_on_terminal(
    header: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str], shrinks: Collection[str]
) -> None:
    """As wide as the terminal is. Not by rich: importing it takes longer than most commands do."""
    widths = [max(map(width, column)) for column in zip(header, *rows, strict=True)]
    excess = sum(widths) + len(GAP) * (len(widths) - 1) - shutil.get_terminal_size().columns
    may_shrink = [column for column, title in enumerate(header) if title in shrinks]
    while excess > 0 and may_shrink:
        widest = max(may_shrink, key=lambda column: widths[column])
        if widths[widest] <= NARROWEST:
            break
        widths[widest] -= 1
        excess -= 1
    fitted = [[cut(cell, columns) for cell, columns in zip(row, widths, strict=True)] for row in (header, *rows)]
    numbers = [column for column, title in enumerate(header) if title in right]
    first, *lines = aligned(fitted, numbers)
    sys.stdout.write(f"{first}\n" if no_color() else f"\x1b[1m{first}\x1b[0m\n")
    sys.stdout.writelines(f"{line}\n" for line in lines)


def cut(text: str, columns: int) -> str:
    """The text in no more than so many columns."""
    if width(text) <= columns:
        return text
    while text and width(text) >= columns:
        text = text[:-1]
    return f"{text}…"
