"""Which effects an irreversible call might be, though its arguments are others: made up anew by a model, or by a program that was
changed. Only somebody who looks at both can tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.errors import EffectBlockedError
from holdfast.model import ids
from holdfast.model.effects import HAPPENED, IN_DOUBT, EffectKind, EffectState
from holdfast.objects import ledger as entries
from holdfast.objects.ledger import Entry
from holdfast.operations import ledger
from holdfast.runs.core import Core
from holdfast.runs.meeting import look
from holdfast.runs.places import could_be_the_same

if TYPE_CHECKING:
    from holdfast.runs.effecting import EffectCall


async def suspects(core: Core, call: EffectCall, entry: Entry | None) -> list[Entry]:
    """Effects of the same tool that stay done though this line of execution does not know of them, or the program has not asked
    for them since it was resumed or tried again. `entry` is what the ledger has of the call itself: if that says that it was
    carried out, or may have been, it was decided about."""
    is_new = entry is None or entry.state is EffectState.FAILED
    if call.kind is not EffectKind.IRREVERSIBLE or not is_new:
        return []
    await look(core)
    assert core.foreign is not None
    unclaimed = core.places.unclaimed(call.name)
    for id_ in unclaimed.keys() - core.foreign.keys():  # of an attempt that has failed since
        if (found := await ledger.find(core.services, id_, core.tree)) is not None:
            core.foreign[id_] = found
    loose = entries.loose_digest(core.services.codec, call.identified)
    suspected = []
    for one in list(core.foreign.values()):
        if one.tool != call.name or not _could_be(core, call, loose, one, unclaimed.get(one.id)):
            continue
        now = await ledger.find(core.services, one.id, core.tree)  # somebody may have decided about it since
        if now is not None and now.state in HAPPENED and not now.acknowledged:
            suspected.append(now)
        else:
            core.foreign.pop(one.id, None)
    return suspected


def _could_be(core: Core, call: EffectCall, loose: bytes, one: Entry, unclaimed_at: str | None) -> bool:
    """Whether an effect of the same tool could be the one that is asked for."""
    if one.kind is not EffectKind.IRREVERSIBLE:
        return False
    if one.id in core.on_path:
        return unclaimed_at is not None and could_be_the_same(call.place, unclaimed_at, is_alike=one.loose == loose)
    is_of_this_run = (one.session, one.token) == (core.options.session_id, core.lease.token)
    return not is_of_this_run or (one.state in IN_DOUBT and one.id not in core.in_flight)


def blocked(core: Core, call: EffectCall, suspected: Sequence[Entry]) -> EffectBlockedError:
    same = entries.loose_digest(core.services.codec, call.identified)
    equal = [one for one in suspected if one.identity == call.digest]
    alike = [one for one in suspected if one.loose == same]
    first = (equal or alike or list(suspected))[0]
    how = "has other arguments"
    if equal or alike:
        how = "has the same arguments" if equal else "differs only in what is new in every call"
    where = "was carried out (or may have been) on another branch or before a rollback"
    if first.id in core.on_path:
        where = (
            "this session has carried out, and the program has not asked for again since it was resumed or tried again,"
        )
    elif (first.session, first.token) == (core.options.session_id, core.lease.token):
        where = "this run has called, and of which nobody knows whether it was carried out,"
    return EffectBlockedError(
        f"effect {call.name!r:.60} is irreversible, and one that {where} {how}: {ids.to_text(first.id)}. This may be "
        f"the same one, regenerated, so it is not carried out. Look at both; then `holdfast resolve {ids.short(ids.to_text(first.id))} --acknowledge` lets "
        "this one go on. identity=(...) says which arguments make out the effect, key=... which call it is",
        tuple(core.effect(one) for one in suspected),
    )
