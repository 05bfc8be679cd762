"""A save of a checkpoint that exists already: the same one again, or a conflict."""

from __future__ import annotations

from typing import Any

from holdfast.backends.port import Commit
from holdfast.errors import ConflictError, StoreError
from holdfast.format.state import write_plan
from holdfast.format.state.record import StoredRecord
from holdfast.format.state.split import Split
from holdfast.model import ids
from holdfast.operations import declared_append, lookup
from holdfast.operations.context import StoreContext
from holdfast.operations.save_labels import hold_again
from holdfast.operations.validate import SaveRequest

# Not part of the content: the commit's own fields, and the path of a directory, which may have
# moved since.
_NOT_CONTENT = frozenset(("id", "seq", "at", "tree", "parent", "psum", "step", "dir"))


async def repeat_save(
    ctx: StoreContext, request: SaveRequest, fields: dict[str, Any], known: StoredRecord
) -> StoredRecord:
    """Repeat a save, perhaps after an unclear failure: a no-op if the content is the same.

    Raises a conflict otherwise.
    """
    # A message without a session may be repeated by another process, from its own lane.
    ignored = _NOT_CONTENT if request.message is None else _NOT_CONTENT | {"session"}
    is_same = (
        not known.is_tombstone
        and all(known.header.get(name) == fields.get(name) for name in {*fields, *known.header} - ignored)
        and (request.step_index is None or request.step_index == known.header.get("step", 0))
        and (request.parent_id is None or request.parent_id == known.parent)
        and await content_root(ctx, request, known) == known.root
    )
    if is_same:
        if not ctx.backend.capabilities.seen_is_durable:
            await _make_durable(ctx, known)
        if request.labels is not None:
            await hold_again(ctx, request.labels, known)
        return known
    raise ConflictError(
        f"checkpoint {ids.to_text(known.id)} is there already, with other content. The stored one is untouched: "
        "leave out checkpoint_id to save a new one"
    )


async def content_root(ctx: StoreContext, request: SaveRequest, known: StoredRecord) -> bytes | None:
    """Return the root digest of this request as the known checkpoint; None if its appends differ."""
    state: tuple[Any, Any] | None = (request.execution_state, request.agent_context)
    if request.append:
        stored_state = await lookup.load_state(ctx, known.manifest(), verify=True)
        state = declared_append.load_whole_lists(ctx, request, stored_state)
        if state is None:
            return None
    assert state is not None
    split = Split(ctx.codec, lambda _: None).take(*state)
    return write_plan.Planner({}, lambda: 0).plan(split, None).manifest.root()


async def _make_durable(ctx: StoreContext, known: StoredRecord) -> None:
    """Wait until the stored checkpoint is durable: the first attempt may have failed before that."""
    try:
        await ctx.backend.commit(Commit(tree=known.tree))
    except StoreError as error:
        error.checkpoint_id = ids.to_text(known.id)
        raise
