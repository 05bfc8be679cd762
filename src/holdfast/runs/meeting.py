"""Which entry of the ledger a call meets: the one that was asked for at the same place; or else the first one of its tool and
identity, unless that was asked for under another key or in another task, whose call it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.model import effects
from holdfast.objects.ledger import Entry
from holdfast.operations import ledger
from holdfast.runs.core import Core
from holdfast.runs.places import are_two

if TYPE_CHECKING:
    from holdfast.runs.effecting import EffectCall


async def met(core: Core, call: EffectCall) -> tuple[bytes, Entry | None]:
    """The effect that the call is for, by its id, and what the ledger has of it. The call is given its ordinal."""
    await look(core)
    places = core.places
    while True:
        call.ordinal = places.ordinal(call.name, call.digest, call.place, is_named=call.is_named)
        id_ = effects.effect_id(core.tree, call.name, call.digest, call.ordinal)
        entry = await ledger.find(core.services, id_, core.tree)
        if entry is None or not is_of_another(entry, call):
            return id_, entry
        places.heed(entry)  # somebody else of the tree was there first
        places.forget_ordinal(call.place, call.name, (call.digest,))


def is_of_another(entry: Entry, call: EffectCall) -> bool:
    """Whether the entry is for sure another call's, though it is of the same tool and identity."""
    return call.is_named and entry.place is not None and are_two(entry.place, call.place)


async def look(core: Core) -> None:
    """Reads what the ledger has of the tree, once in a run."""
    if core.foreign is not None:
        return
    of_tree = await ledger.of_tree(core.services, core.tree)
    with core.lock:
        if core.foreign is None:
            known = core.on_path - core.places.all_unclaimed()
            core.foreign = {one.id: one for one in of_tree if one.id not in known}
            for one in of_tree:
                core.places.heed(one)
