"""Measurement of losses: a conversation and what came back of it are compared, facet by facet."""

from __future__ import annotations

from bisect import bisect_left
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
    values = [{kind: [item.value for item in items] for kind, items in found.items()} for found in (old, new)]
    for kind in old:
        if values[0][kind] == values[1][kind]:  # as most are: the differ would encode each value
            del values[0][kind], values[1][kind]
    missing: dict[str, list[tuple[int, FacetItem]]] = {}
    for edit in Differ(codec).edits(values[0], values[1], ()):
        assert isinstance(edit, Splice)  # facets are lists of plain values
        kind = edit.path[0]
        items = old[kind][edit.at : edit.at + len(edit.removed)]
        missing.setdefault(kind, []).extend((edit.at, item) for item in _find_missing(items, edit.added))
    losses = [
        (at, make_loss(item.kind or kind, item.path, _format_value(item.value)))
        for kind, found in missing.items()
        for at, item in _with_own_kinds(old[kind], found)
    ]
    # What is gone as a whole is not reported for its media type, too.
    gone = {loss.path for _, loss in losses if loss.kind in _MEDIA}
    losses = [item for item in losses if item[1].kind not in _TYPES or item[1].path not in gone]
    order = {kind: number for number, kind in enumerate(old)}
    return [loss for _, loss in sorted(losses, key=lambda found: (order[found[1].kind], found[0]))]


def _find_missing(items: Sequence[FacetItem], added: Sequence[Any]) -> Iterator[FacetItem]:
    """Yield the items that are not among those that were added in their place, in the same order."""
    places: dict[Any, list[int]] = {}
    for place, value in enumerate(added):
        places.setdefault(_key(value), []).append(place)
    at = 0
    for item in items:
        found = places.get(_key(item.value), [])
        next_place = bisect_left(found, at)
        if next_place == len(found):
            yield item
        else:
            at = found[next_place] + 1


def _with_own_kinds(
    items: Sequence[FacetItem], missing: Sequence[tuple[int, FacetItem]]
) -> Iterator[tuple[int, FacetItem]]:
    """Yield what is missing; of several equal items, those with a kind of their own are.

    Which of them is missing does not follow from a comparison of values. A kind of its own is one that
    a target loses, and the facet's is one that it may not lose.
    """
    gone = {id(item) for _, item in missing}
    others: dict[Any, list[FacetItem]] = {}
    for item in items:
        if item.kind and id(item) not in gone:
            others.setdefault(_key(item.value), []).append(item)
    for at, item in missing:
        equal = others.get(_key(item.value)) if not item.kind else None
        yield at, equal.pop() if equal else item


def _key(value: Any) -> Any:
    """Return a value of a facet as one that can be looked up."""
    return tuple(value) if isinstance(value, list) else value


def _format_value(value: Any) -> str:
    text = str(value[-1] if isinstance(value, list) else value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
