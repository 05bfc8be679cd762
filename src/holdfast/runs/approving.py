"""The hook where an effect waits for approval: between its identity being known and its intent being written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.backends.port import RowWrite
from holdfast.errors import UsageError
from holdfast.objects.ledger import Entry
from holdfast.runs.core import Core

if TYPE_CHECKING:
    from holdfast.runs.effecting import EffectCall


class Admission(NamedTuple):
    """That a call may be carried out: by which approval, with which arguments instead of those it was made with, and the
    rows that use the approval up. They are written by the commit that writes the intent, or not at all."""

    approval_id: str | None = None
    arguments: Mapping[str, Any] | None = None
    rows: Sequence[RowWrite] = ()


async def admitted(
    core: Core, call: EffectCall, effect_id: bytes, entry: Entry | None, suspects: Sequence[Entry]
) -> Admission | None:
    """None if nobody has to be asked. Raises if somebody has, and has not answered, or has said no."""
    raise UsageError(f"effect {call.name!r:.60}: approvals are not there yet")
