"""Comparison of two sessions: their common ancestor, and the changes of each since."""

from __future__ import annotations

from holdfast.model import comparison, ids
from holdfast.operations import diff, resolve
from holdfast.operations.context import StoreContext


async def compare(ctx: StoreContext, session_a: str, session_b: str) -> comparison.Comparison:
    names = (session_a, session_b)
    branches = [await resolve.load_branch(ctx, name) for name in names]
    ancestor = comparison.find_fork_point(*branches)
    parted = ids.from_text(ancestor.checkpoint_id) if ancestor is not None else None
    heads = [ids.from_text(branch[0].checkpoint_id) for branch in branches]
    sides = []
    for name, branch, head in zip(names, branches, heads, strict=True):
        since = await diff.diff(ctx, parted, head) if parted is not None else None
        sides.append(comparison.make_side(name, branch, ancestor, since))
    return comparison.Comparison(ancestor=ancestor, a=sides[0], b=sides[1], diff=await diff.diff(ctx, *heads))
