"""The lanes of a tree as text: one row of characters for each checkpoint, two columns for each lane."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.model.tree import LaneRow


@dataclass(frozen=True, slots=True)
class Glyphs:
    node: str
    passes: str
    ends: str  # a branch, at the checkpoint it began from
    ends_between: str
    crossing: str
    along: str
    head: str


BOXES = Glyphs(node="●", passes="│", ends="╯", ends_between="┴", crossing="┼", along="─", head="◀")
ASCII = Glyphs(node="*", passes="|", ends="'", ends_between="'", crossing="+", along="-", head="<-")


def lane_text(row: LaneRow, draw: Glyphs) -> str:
    """One row of lanes."""
    last_join = max(row.joins, default=-1)
    cells = []
    for lane in range(max((row.lane, last_join, *row.through)) + 1):
        bridged = row.lane < lane < last_join  # the line to a branch that ends further right goes through here
        if lane == row.lane:
            cell = draw.node
        elif lane == last_join:
            cell = draw.ends
        elif lane in row.joins:
            cell = draw.ends_between
        elif lane in row.through:
            cell = draw.crossing if bridged else draw.passes
        else:
            cell = draw.along if bridged else " "
        cells.append(cell + (draw.along if row.lane <= lane < last_join else " "))
    return "".join(cells).rstrip()
