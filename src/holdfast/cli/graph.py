"""A tree of checkpoints, drawn: a lane per branch, newest at the top."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from holdfast.cli.printable import name
from holdfast.cli.tables import aligned
from holdfast.model.drawing import ASCII, BOXES, Glyphs, lane_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.model.checkpoint import Checkpoint
    from holdfast.model.handoff import Handoff
    from holdfast.model.listing import Tree
    from holdfast.model.tree import LaneRow


def glyphs() -> Glyphs:
    """Boxes where the output can say them."""
    try:
        "●│╯┴┼─◀".encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return ASCII
    return BOXES


def lines(tree: Tree, limit: int | None = None) -> list[str]:
    """The drawing, a line for each checkpoint: lanes, short id, step, session, time, and whose head it is."""
    draw = glyphs()
    by_id = {entry.checkpoint_id: entry for entry in tree.entries}
    heads: dict[str, list[str]] = {}
    for session, head in tree.heads.items():
        heads.setdefault(head, []).append(session)
    return aligned([_cells(row, by_id[str(row.node)], tree, heads, draw) for row in tree.lanes()[:limit]], right=(2,))


def _cells(
    row: LaneRow, entry: Checkpoint, tree: Tree, heads: Mapping[str, list[str]], draw: Glyphs
) -> tuple[str, ...]:
    notes = [_handoff(entry, tree.handoffs.get(entry.checkpoint_id))] if entry.handoff_target else []
    notes += [f"{draw.head} head of {name(session)}" for session in heads.get(entry.checkpoint_id, ())]
    return (
        lane_text(row, draw),
        entry.short_id,
        "" if entry.step_index is None else str(entry.step_index),
        name(entry.step_name),
        name(entry.session_id),
        f"{entry.created_at:%Y-%m-%d %H:%M:%S}",
        "  ".join(notes),
    )


def _handoff(entry: Checkpoint, handoff: Handoff | None) -> str:
    """For whom it is, and what became of it."""
    text = f"for {name(entry.handoff_target)}"
    if handoff is None or handoff.by is None:
        return text
    return f"{text}: {handoff.status} by {name(handoff.by)}"
