"""A tree of checkpoints, drawn: a lane per branch, newest at the top."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from holdfast.cli.terminal.sanitize import format_identifier, format_name, format_number, format_utc
from holdfast.cli.terminal.table import align
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.handoff import Handoff
from holdfast.model.listing import Tree
from holdfast.model.tree import ASCII, BOXES, Glyphs, LaneRow, format_lane


def choose_glyphs() -> Glyphs:
    """Boxes where the output can say them."""
    try:
        "●│╯┴┼─◀".encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return ASCII
    return BOXES


def draw_tree(tree: Tree, limit: int | None = None) -> list[str]:
    """Return a line for each checkpoint: lanes, short id, step, session, time, and whose head it is."""
    draw = choose_glyphs()
    by_id = {entry.checkpoint_id: entry for entry in tree.entries}
    heads: dict[str, list[str]] = {}
    for session, head in tree.heads.items():
        heads.setdefault(head, []).append(session)
    return align([_cells(row, by_id[str(row.node)], tree, heads, draw) for row in tree.lanes()[:limit]], right=(2,))


def _cells(
    row: LaneRow, entry: Checkpoint, tree: Tree, heads: Mapping[str, list[str]], draw: Glyphs
) -> tuple[str, ...]:
    notes = [_handoff(entry, tree.handoffs.get(entry.checkpoint_id))] if entry.handoff_target else []
    notes += [f"{draw.head} head of {format_identifier(session)}" for session in heads.get(entry.checkpoint_id, ())]
    return (
        format_lane(row, draw),
        entry.short_id,
        format_number(entry.step_index),
        format_name(entry.step_name),
        format_identifier(entry.session_id),
        format_utc(entry.created_at),
        "  ".join(notes),
    )


def _handoff(entry: Checkpoint, handoff: Handoff | None) -> str:
    """Return the target of a handoff, and its status."""
    text = f"for {format_identifier(entry.handoff_target)}"
    if handoff is None or handoff.by is None:
        return text
    return f"{text}: {handoff.status} by {format_name(handoff.by)}"
