"""Pure functions over a tree of checkpoints: who descends from whom, and how to draw it.

A tree is given as `parents`, a mapping from id to parent id (None, or an id that is not in the mapping, marks a
root: its parent has expired or was never here). Ids may be of any hashable type.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

Id = TypeVar("Id", bound=Hashable)


def ancestors(parents: Mapping[Id, Id | None], start: Id) -> Iterator[Id]:
    """From `start` (itself included) up to its root."""
    seen: set[Id] = set()
    current: Id | None = start
    while current is not None and current in parents:
        if current in seen:
            raise ValueError(f"{current!r} is its own ancestor: not a tree")
        seen.add(current)
        yield current
        current = parents[current]


def leaves(parents: Mapping[Id, Id | None]) -> list[Id]:
    """The checkpoints nobody followed, in the mapping's order: the tips of all branches."""
    followed = set(parents.values())
    return [node for node in parents if node not in followed]


def roots(parents: Mapping[Id, Id | None]) -> list[Id]:
    """The checkpoints whose parent is none or not here."""
    return [node for node, parent in parents.items() if parent is None or parent not in parents]


def common_ancestor(parents: Mapping[Id, Id | None], a: Id, b: Id) -> Id | None:
    """The nearest checkpoint that both descend from (or are), None if they share none."""
    of_a = set(ancestors(parents, a))
    return next((node for node in ancestors(parents, b) if node in of_a), None)


@dataclass(frozen=True, slots=True)
class LaneRow:
    """One line of a drawn tree: the node stands in `lane`; `through` are the other lanes that pass by;
    `joins` are lanes that end here, because their branch began at this node."""

    node: Hashable
    lane: int
    through: tuple[int, ...]
    joins: tuple[int, ...]
    is_leaf: bool


def lanes(parents: Mapping[Id, Id | None], newest_first: Sequence[Id]) -> list[LaneRow]:
    """The rows of a lane graph for nodes given newest first (every child before its parent).

    A lane is reserved for the parent of the last node drawn in it; a branch's lane ends at the node it began from,
    and is free again for the next one.
    """
    waiting: list[Id | None] = []  # per lane, the node it leads to
    rows = []
    for node in newest_first:
        leading_here = [lane for lane, target in enumerate(waiting) if target == node]
        if leading_here:
            lane, joins = leading_here[0], tuple(leading_here[1:])
        else:
            lane, joins = next((i for i, target in enumerate(waiting) if target is None), len(waiting)), ()
            if lane == len(waiting):
                waiting.append(None)
        through = tuple(
            i for i, target in enumerate(waiting) if target is not None and i != lane and i not in leading_here
        )
        rows.append(LaneRow(node=node, lane=lane, through=through, joins=joins, is_leaf=not leading_here))
        for join in joins:
            waiting[join] = None
        parent = parents.get(node)
        waiting[lane] = parent if parent in parents else None
        while waiting and waiting[-1] is None:
            waiting.pop()
    return rows
