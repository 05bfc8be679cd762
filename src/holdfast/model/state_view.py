"""The view of a framework's checkpoints for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from holdfast.model.checkpoint import Checkpoint
    from holdfast.model.diff import Diff, Edit


class StateView(Protocol):
    """An adapter's knowledge of the states that its framework stores."""

    def is_made_by(self, checkpoint: Checkpoint) -> bool:
        """Return whether the adapter made the checkpoint."""

    def summary(self, diff: Diff) -> str:
        """Return a line about the steps between two of its checkpoints; "" if there is nothing to say."""

    def value_edits(self, edits: Iterable[Edit]) -> Iterator[Edit]:
        """Yield the edits of the user's values, by the names that the framework's users know."""
