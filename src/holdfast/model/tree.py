"""Pure functions over a tree of checkpoints: ancestry, and drawing.

A tree is given as `parents`, a mapping from id to parent id (None, or an id that is not in the
mapping, marks a root: its parent has expired or was never here). Ids may be of any hashable type.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar


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


def format_lane(row: LaneRow, draw: Glyphs) -> str:
    """Return one row of lanes as text."""
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


Id = TypeVar("Id", bound=Hashable)


def ancestors(parents: Mapping[Id, Id | None], start: Id) -> Iterator[Id]:
    """Yield `start` and its ancestors, up to the root."""
    seen: set[Id] = set()
    current: Id | None = start
    while current is not None and current in parents:
        if current in seen:
            raise ValueError(f"{current!r} is its own ancestor: not a tree")
        seen.add(current)
        yield current
        current = parents[current]


def leaves(parents: Mapping[Id, Id | None]) -> list[Id]:
    """Return the checkpoints without children, in the mapping's order: the tips of all branches."""
    followed = set(parents.values())
    return [node for node in parents if node not in followed]


def common_ancestor(parents: Mapping[Id, Id | None], a: Id, b: Id) -> Id | None:
    """Return the nearest checkpoint that both descend from (or are), None if they share none."""
    of_a = set(ancestors(parents, a))
    return next((node for node in ancestors(parents, b) if node in of_a), None)


@dataclass(frozen=True, slots=True)
class LaneRow:
    """One line of a drawn tree.

    The node is in `lane`; `through` are the other lanes that pass by; `joins` are lanes that end
    here, because their branch began at this node.
    """

    node: Hashable
    lane: int
    through: tuple[int, ...]
    joins: tuple[int, ...]
    is_leaf: bool


def lanes(parents: Mapping[Id, Id | None], newest_first: Sequence[Id]) -> list[LaneRow]:
    """Return the rows of a lane graph for nodes given newest first (every child before its parent).

    A lane is reserved for the parent of the last node drawn in it; a branch's lane ends at the node
    where it began, and is free again for the next one.
    """
    waiting: list[Id | None] = []  # per lane, the node it leads to
    rows = []
    for node in newest_first:
        own_lanes = [lane for lane, target in enumerate(waiting) if target == node]
        if own_lanes:
            lane, joins = own_lanes[0], tuple(own_lanes[1:])
        else:
            lane, joins = next((i for i, target in enumerate(waiting) if target is None), len(waiting)), ()
            if lane == len(waiting):
                waiting.append(None)
        through = tuple(
            i for i, target in enumerate(waiting) if target is not None and i != lane and i not in own_lanes
        )
        rows.append(LaneRow(node=node, lane=lane, through=through, joins=joins, is_leaf=not own_lanes))
        for join in joins:
            waiting[join] = None
        parent = parents.get(node)
        waiting[lane] = parent if parent in parents else None
        while waiting and waiting[-1] is None:
            waiting.pop()
    return rows
