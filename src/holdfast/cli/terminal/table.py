"""Tables: fitted to the width of a terminal; as plain aligned columns anywhere else."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection, Sequence

from holdfast.cli.terminal.color import no_color
from holdfast.cli.terminal.sanitize import measure_width

GAP = "  "
NARROWEST = 6  # columns that one which gives way keeps


def print_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Collection[str] = (),
    shrinks: Collection[str] = (),
    whole: Collection[str] = (),
) -> None:
    """Print rows of cells that are safe to print (see `printable`).

    The columns named in `right` are numbers. Where the terminal is narrow, cells of the columns in
    `shrinks` are cut, and long cells of those in `whole` move to a line of their own, from which
    they can be pasted. No other cell is cut.
    """
    if sys.stdout.isatty():
        _print_on_terminal(header, rows, right, shrinks, whole)
    else:
        sys.stdout.write(format_table(header, rows, right=right))


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[str] = ()) -> str:
    numbers = [column for column, title in enumerate(header) if title in right]
    return "".join(f"{line}\n" for line in align([header, *rows], numbers))


def align(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Lines whose cells stand below each other."""
    widths = [max(map(measure_width, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = []
        for column, (cell, columns) in enumerate(zip(row, widths, strict=True)):
            blanks = " " * (columns - measure_width(cell))
            cells.append(blanks + cell if column in right else cell + blanks)
        lines.append(GAP.join(cells).rstrip())
    return lines


def _print_on_terminal(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Collection[str],
    shrinks: Collection[str],
    whole: Collection[str],
) -> None:
    """Print as wide as the terminal, without rich: its import takes longer than most commands."""
    may_shrink = [column for column, title in enumerate(header) if title in shrinks]
    may_move = [column for column, title in enumerate(header) if title in whole]
    widths = _column_widths(header, rows, may_shrink, may_move)
    shown = [header]
    moved: list[tuple[list[str], list[str]]] = [([], [])]
    for row in rows:
        long = [column for column in may_move if measure_width(row[column]) > widths[column]]
        shown.append(["" if column in long else cell for column, cell in enumerate(row)])
        moved.append(
            (
                [row[column] for column in long if column == 0],
                [
                    f"{GAP}{header[column]}: {row[column]}" if header[column] else f"{GAP}{row[column]}"
                    for column in long
                    if column
                ],
            )
        )
    fitted = [[cut(cell, columns) for cell, columns in zip(row, widths, strict=True)] for row in shown]
    numbers = [column for column, title in enumerate(header) if title in right]
    first, *lines = align(fitted, numbers)
    sys.stdout.write(f"{first}\n" if no_color() else f"\x1b[1m{first}\x1b[0m\n")
    for line, (above, below) in zip(lines, moved[1:], strict=True):
        sys.stdout.writelines(f"{item}\n" for item in (*above, line, *below))


def _column_widths(
    header: Sequence[str], rows: Sequence[Sequence[str]], may_shrink: Sequence[int], may_move: Sequence[int]
) -> list[int]:
    """Return the column widths; descriptions shrink before names that commands take.

    Once long names have moved, there is room again.
    """
    natural = [max(map(measure_width, column)) for column in zip(header, *rows, strict=True)]
    room = shutil.get_terminal_size().columns - len(GAP) * (len(natural) - 1)
    narrow = _narrow_columns(_narrow_columns(natural, may_shrink, room), may_move, room)
    for column in may_move:
        staying = [measure_width(row[column]) for row in rows if measure_width(row[column]) <= narrow[column]]
        natural[column] = max([measure_width(header[column]), *staying])
    return _narrow_columns(natural, may_shrink, room)


def _narrow_columns(widths: Sequence[int], columns: Sequence[int], room: int) -> list[int]:
    """Narrow the widest of some columns until all fit, or none can shrink any more."""
    widths = list(widths)
    while sum(widths) > room and columns:
        widest = max(columns, key=lambda column: widths[column])
        if widths[widest] <= NARROWEST:
            break
        widths[widest] -= 1
    return widths


def cut(text: str, columns: int) -> str:
    """Return the text in no more than so many columns."""
    if measure_width(text) <= columns:
        return text
    while text and measure_width(text) >= columns:
        text = text[:-1]
    return f"{text}…"
