"""The state of a save: encoded once, and planned for each checkpoint that may become its parent."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from holdfast.backends.port import Segment, Span
from holdfast.format.state import write_plan
from holdfast.format.state.manifest import Manifest, Path
from holdfast.format.state.split import KnownList, Split, encode_whole
from holdfast.format.state.write_plan import WritePlan
from holdfast.operations import declared_append
from holdfast.operations.context import StoreContext
from holdfast.operations.session_cache import SessionTip
from holdfast.operations.validate import SaveRequest


class StateEncoder:
    """The encoder of one save's state.

    The state at the first encoding counts: the caller may have changed it since.
    """

    def __init__(self, ctx: StoreContext, request: SaveRequest) -> None:
        self._ctx = ctx
        self._request = request
        self._skeleton = request.encoded  # of a state that is whole: the same for every parent
        self._split: Split | None = None
        self._parent: SessionTip | None = None  # that the state was split for

    async def plan(self, tip: SessionTip, closed: Collection[int]) -> WritePlan:
        """Return the writes with which the state follows this tip. Logs in `closed` take no more elements."""
        small = self._plan_small(tip.manifest)
        if small is not None:
            return WritePlan(small, (), {})
        if self._split is None or self._parent is None or self._parent.checkpoint is not tip.checkpoint:
            self._split = await self._split_for(tip)
            self._parent = tip
        return await plan_writes(self._ctx, self._split, tip, closed)

    def known_lists(self, manifest: Manifest) -> dict[Path, KnownList]:
        """Return the lists of the state as this process knows them, for the next save."""
        if not manifest.lists:
            return {}
        assert self._split is not None
        return {
            entry.path: KnownList(entry, image.groups, image.chain, image.groups is None)
            for image, entry in zip(self._split.lists, manifest.lists, strict=True)
        }

    def _plan_small(self, parent: Manifest | None) -> Manifest | None:
        """Return the manifest of a small state, which needs no reading and no log; None for a larger one."""
        request = self._request
        # A guess: a state is about as large as the one before it, and the first one of a session is small.
        is_expected = parent is None or not (parent.lists or parent.blobs)
        if is_expected and self._skeleton is None and self._split is None and not request.append:
            self._skeleton = encode_whole(self._ctx.codec, request.execution_state, request.agent_context)
        return None if self._skeleton is None else write_plan.build_small(self._skeleton, parent)

    async def _split_for(self, tip: SessionTip) -> Split:
        ctx, request = self._ctx, self._request
        if self._skeleton is not None:
            return Split(ctx.codec, tip.find_list, self._skeleton)
        state: tuple[Any, Any]
        if self._split is not None:
            state = self._split.thaw()
            if request.append:
                state = await declared_append.reapply_appends(ctx, request, tip, state)
        elif request.append:
            state = await declared_append.apply_appends(ctx, request, tip)
        else:
            state = request.execution_state, request.agent_context
        return Split(ctx.codec, tip.find_list).take(*state)


async def plan_writes(ctx: StoreContext, split: Split, tip: SessionTip, closed: Collection[int]) -> WritePlan:
    """Return the writes with which a split state follows this tip."""
    stored: dict[Span, Sequence[Segment]] = dict(tip.at_hand or ())
    merge = ctx.backend.capabilities.sealed
    wanted = write_plan.list_wanted_spans(split, tip.manifest, merge=merge)
    spans = [span for span in wanted if span not in stored]
    if spans:
        stored.update(zip(spans, await ctx.backend.segments(spans), strict=True))
    needed = write_plan.logs_needed(split, tip.manifest, closed)
    numbers = await ctx.logs.take(ctx.backend, needed) if needed else []
    try:
        return write_plan.Planner(stored, numbers.pop, closed, merge=merge).plan(split, tip.manifest)
    finally:
        ctx.logs.give_back(numbers)
