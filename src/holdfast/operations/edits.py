"""Edits of a stored state: what must be written so that a child has other values in some places of it."""

from __future__ import annotations

from holdfast.backends.port import ABSENT
from holdfast.model import editing
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.editing import Edits
from holdfast.objects import plan, rows
from holdfast.objects.record import Stored
from holdfast.objects.split import Split
from holdfast.operations import save as saving
from holdfast.operations.memory import Line
from holdfast.operations.services import Services


async def planned(services: Services, source: Stored, loaded: Checkpoint, edits: Edits) -> plan.Plan:
    """The plan of a child of `source`, which was `loaded`, with these edits made. It shares all that it can, and what is new
    goes to logs of its own: the source's belong to the line that goes on from it, and several children may be
    planned for one commit."""
    state, context = editing.edited(loaded.execution_state, loaded.agent_context, edits)
    manifest = source.manifest()
    line = Line(
        tree=source.tree, version=ABSENT, head=rows.Head(None, 0), head_value=None, tip=source, manifest=manifest
    )
    tails = [entry.tail for entry in manifest.lists]
    closed = {tail.log for tail in (*tails, manifest.skeleton.tail) if tail is not None}
    split = Split(services.codec, line.known).take(state, context)
    return await saving._plan(services, split, line, closed)
