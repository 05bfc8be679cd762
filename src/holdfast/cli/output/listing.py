"""Lists: a table for people, an array with `--json`, one sentence if there is nothing to list."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import click

from holdfast.cli.output.json import print_json
from holdfast.cli.terminal.pager import page_output
from holdfast.cli.terminal.table import print_table

Row = TypeVar("Row")
Fit = Literal["", "right", "shrinks", "whole"]


class Column(NamedTuple, Generic[Row]):
    """A column: its title, the text of a row's cell, and its fit to a terminal (see `print_table`)."""

    title: str
    cell: Callable[[Row], str]
    fit: Fit = ""


def print_listing(
    key: str,
    rows: Sequence[Row],
    fields: Callable[[Row], Mapping[str, Any]],
    columns: Sequence[Column[Row]],
    *,
    nothing: str,
    as_json: bool,
    **more: Any,
) -> None:
    """Print rows; with `as_json`, as `{key: [fields, ...]}` after the fields in `more`."""
    if as_json:
        print_json({**more, key: [fields(row) for row in rows]})
    elif rows:
        with page_output():
            print_rows(rows, columns)
    else:
        click.echo(nothing, err=True)


def print_rows(rows: Sequence[Row], columns: Sequence[Column[Row]]) -> None:
    """Print a table with a line for each row."""
    fits = {fit: [column.title for column in columns if column.fit == fit] for fit in ("right", "shrinks", "whole")}
    cells = [[column.cell(row) for column in columns] for row in rows]
    print_table([column.title for column in columns], cells, **fits)


def print_result(fields: Mapping[str, Any], text: str, *, as_json: bool) -> None:
    """Print the result of a command: its fields with `--json`, else one line of text."""
    if as_json:
        print_json(fields)
    else:
        click.echo(text)
