"""Measurement of losses: a conversation and what came back of it are compared, facet by facet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from holdfast.codec.codec import Codec
from holdfast.format.state.diff import Differ
from holdfast.model.conversation import Transcript
from holdfast.model.diff import Splice
from holdfast.model.loss import Loss, make_loss
from holdfast.model.transcript_facets import FacetItem, list_facets

SHOWN = 60
_TYPES = ("media_types", "link_types")
_MEDIA = ("images", "image_links", "files", "model_images", "result_images", "result_files")


def measure_losses(codec: Codec, before: Transcript, after: Transcript) -> list[Loss]:
    """Return what `before` has and `after` lacks, in the order of the conversation.

    Notes that were added are no losses.
    """
    old, new = list_facets(before), list_facets(after)
    values = [{kind: [one.value for one in items] for kind, items in found.items()} for found in (old, new)]
    losses: list[tuple[int, Loss]] = []
    for edit in Differ(codec).edits(values[0], values[1], ()):
        assert isinstance(edit, Splice)  # facets are lists of plain values
        kind = edit.path[0]
        items = old[kind][edit.at : edit.at + len(edit.removed)]
        losses += [
            (edit.at, make_loss(one.kind or kind, one.path, _shown(one.value))) for one in _missing(items, edit.added)
        ]
    # What is gone as a whole is not reported for its media type, too.
    gone = {loss.path for _, loss in losses if loss.kind in _MEDIA}
    losses = [one for one in losses if one[1].kind not in _TYPES or one[1].path not in gone]
    order = {kind: number for number, kind in enumerate(old)}
    return [loss for _, loss in sorted(losses, key=lambda found: (order[found[1].kind], found[0]))]


def _missing(items: Sequence[FacetItem], added: Sequence[Any]) -> Iterator[FacetItem]:
    """Yield the items that are not among those that were added in their place, in the same order."""
    at = 0
    for item in items:
        found = next((place for place in range(at, len(added)) if added[place] == item.value), None)
        if found is None:
            yield item
        else:
            at = found + 1


def _shown(value: Any) -> str:
    text = str(value[-1] if isinstance(value, list) else value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
