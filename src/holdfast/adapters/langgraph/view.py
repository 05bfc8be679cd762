"""Checkpoints of LangGraph as its users know them: nodes that ran, and values of channels by name.

Next to the values, LangGraph stores the versions of channels, and which of them each node has seen.
These tell which nodes ran; the view shows the nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from holdfast.model.framework import Framework

if TYPE_CHECKING:
    from holdfast.model.checkpoint import Checkpoint
    from holdfast.model.diff import Diff, Edit

VALUES = ("execution_state", "channel_values")
SEEN = ("execution_state", "versions_seen")
SENT = (*VALUES, "__pregel_tasks")
GIVEN = ("metadata", "metadata")
_OWN_CHANNELS = ("branch:", "start:", "join:", "__")  # which lead from node to node
_ROOT = "__root__"  # the whole state, where it is no mapping
_NO_NODES = frozenset(("__input__", "__start__", "__interrupt__"))
_OWN_METADATA = frozenset(("source", "step", "parents", "writes", "run_id", "run_attempt"))


def is_langgraph(checkpoint: Checkpoint) -> bool:
    """Return whether LangGraph made the checkpoint, by holdfast's saver."""
    return checkpoint.framework is Framework.LANGGRAPH and "langgraph_id" in checkpoint.metadata


def channels(state: Any) -> dict[str, Any] | None:
    """Return the values of a state by the names of their channels; None if it has none."""
    values = state.get(VALUES[1]) if isinstance(state, Mapping) else None
    if not isinstance(values, Mapping):
        return None
    return {name: value for name, value in values.items() if _is_value(name)}


def metadata_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return a graph's own metadata, without LangGraph's additions."""
    given = checkpoint.metadata.get(GIVEN[1])
    return {key: value for key, value in given.items() if not _is_own(key)} if isinstance(given, Mapping) else {}


def nodes(diff: Diff) -> list[str]:
    """Return the nodes that ran between two checkpoints, by name."""
    if not (is_langgraph(diff.a) and is_langgraph(diff.b)):
        return []
    ran = {str(edit.path[2]) for edit in diff.edits if edit.path[:2] == SEEN and len(edit.path) > len(SEEN)}
    # For sends to a node, LangGraph keeps no version that the node has seen.
    ran.update(name for edit in diff.edits if edit.path == SENT for name in _receivers(edit))
    return sorted(ran - _NO_NODES)


class LangGraphView:
    """Checkpoints of LangGraph as `StateView` wants them."""

    def is_made_by(self, checkpoint: Checkpoint) -> bool:
        return is_langgraph(checkpoint)

    def summary(self, diff: Diff) -> str:
        ran = nodes(diff)
        return f"nodes that ran: {', '.join(ran)}" if ran else ""

    def value_edits(self, edits: Iterable[Edit]) -> Iterator[Edit]:
        return value_edits(edits)


def _receivers(edit: Edit) -> Iterator[str]:
    """Yield the nodes that consumed the sends that no longer wait for them."""
    went = getattr(edit, "removed", None) or getattr(edit, "was", None)
    for sent in went if isinstance(went, list | tuple) else ():
        parts = getattr(sent, "parts", sent)  # of a class that is not known here
        node = parts[0] if isinstance(parts, list) and parts else getattr(sent, "node", None)
        if isinstance(node, str):
            yield node


def value_edits(edits: Iterable[Edit]) -> Iterator[Edit]:
    """Yield the edits of values and given metadata; a value's path begins with its channel's name."""
    for edit in edits:
        path = edit.path
        if path[:2] == VALUES and len(path) > len(VALUES):
            if _is_value(path[2]):
                yield edit._replace(path=path[2:])
        elif path[:2] == GIVEN and len(path) > len(GIVEN):
            if not _is_own(path[2]):
                yield edit._replace(path=path[1:])
        elif path[0] not in ("execution_state", "metadata") or path == VALUES:
            yield edit


def _is_value(channel: Any) -> bool:
    return channel == _ROOT or not str(channel).startswith(_OWN_CHANNELS)


def _is_own(key: Any) -> bool:
    return key in _OWN_METADATA or str(key).startswith("langgraph_")
