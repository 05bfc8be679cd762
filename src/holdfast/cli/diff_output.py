"""How differences of states are shown: in colour on a terminal, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from holdfast.model.diff import Diff, Edit

COLOURS = {"+": "green", "-": "red", "~": "yellow", "@": "cyan"}


def print_diff(diff: Diff, *, files: bool = True) -> None:
    """A line or a few for each edit; nothing if there is none."""
    from holdfast.cli.printable import printable

    print_lines(f"{sign} {printable(line)}" for sign, line in diff.lines(files=files))


def print_lines(lines: Iterable[str]) -> None:
    """Lines that are safe to print, coloured by what they begin with."""
    from holdfast.cli.colors import is_colored

    coloured = is_colored()
    for line in lines:
        colour = COLOURS.get(line[:1]) if coloured else None
        click.echo(click.style(line, fg=colour) if colour else line)


def edit_fields(edit: Edit) -> dict[str, Any]:
    """An edit for `--json`."""
    from holdfast.cli.json_output import shown
    from holdfast.model.diff import Drop, Put, Splice

    path = [int(key) if isinstance(key, int) and not isinstance(key, bool) else shown(key) for key in edit.path]
    if isinstance(edit, Put):
        if edit.replaces:
            return {"kind": "change", "path": path, "old": shown(edit.was), "new": shown(edit.value)}
        return {"kind": "add", "path": path, "new": shown(edit.value)}
    if isinstance(edit, Drop):
        return {"kind": "remove", "path": path, "old": shown(edit.was)}
    if isinstance(edit, Splice):
        old, new = ([shown(element) for element in elements] for elements in (edit.removed, edit.added))
        return {"kind": "splice", "path": path, "at": edit.at, "old": old, "new": new}
    return {"kind": "reorder", "path": path, "keys": [shown(key) for key in edit.keys]}


def recorded_fields(diff: Diff) -> list[dict[str, Any]]:
    """The steps and effects that only one of two checkpoints has."""
    return [
        {
            "came": one.came,
            "kind": one.kind,
            "name": one.name,
            "status": one.status,
            "effect_id": one.effect.effect_id if one.effect else None,
            "effect_state": str(one.effect.state) if one.effect else None,
        }
        for one in diff.recorded
    ]
