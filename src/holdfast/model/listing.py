"""Listings: sessions, timelines and trees as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.model import tree as trees
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.handoff import Handoff


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A session and its head; `saves` counts all checkpoints ever saved to it."""

    session_id: str
    tree_id: str
    head: Checkpoint
    saves: int

    @property
    def agent_id(self) -> str:
        return self.head.agent_id


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedCheckpoint:
    """A checkpoint that can't be read, by its number in its session: 0 for the session's head row.

    `checkpoint_id` is None if the checkpoint is missing altogether.
    """

    session_id: str
    sequence: int
    checkpoint_id: str | None
    message: str


class Timeline(list[Checkpoint]):
    """A list of checkpoints without their states, newest first."""

    def _repr_html_(self) -> str:
        from holdfast.model import html_repr

        return html_repr.timeline(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """All checkpoints of a tree, newest first (children before parents).

    `heads` are by session. `expired` ones come with their parents, so that lines of descent can be
    followed through them. `handoffs` are by their ids, with their states.
    """

    tree_id: str
    entries: tuple[Checkpoint, ...]
    heads: Mapping[str, str]
    expired: Mapping[str, str | None] = field(default_factory=dict)
    handoffs: Mapping[str, Handoff] = field(default_factory=dict)

    @property
    def parents(self) -> dict[str, str | None]:
        """The nearest existing ancestor of each checkpoint."""
        live = {entry.checkpoint_id for entry in self.entries}
        return {entry.checkpoint_id: self._find_nearest(entry.parent_id, live) for entry in self.entries}

    def _find_nearest(self, id_: str | None, live: set[str]) -> str | None:
        while id_ is not None and id_ not in live:
            id_ = self.expired.get(id_)
        return id_

    @property
    def leaves(self) -> list[str]:
        """The tips of all branches, newest first."""
        return trees.leaves(self.parents)

    def common_ancestor(self, a: str, b: str) -> str | None:
        return trees.common_ancestor(self.parents, a, b)

    def lanes(self) -> list[trees.LaneRow]:
        """Return the rows of a drawing, newest first."""
        return trees.lanes(self.parents, [entry.checkpoint_id for entry in self.entries])

    def __len__(self) -> int:
        return len(self.entries)

    def _repr_html_(self) -> str:
        from holdfast.model import html_repr

        return html_repr.tree(self)
