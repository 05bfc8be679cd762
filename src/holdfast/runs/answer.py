"""The answer of a delegated run that a worker carries out: its result, or its failure."""

from __future__ import annotations

from typing import Any

from holdfast.backends.port import RowWrite
from holdfast.coordination import contract_use
from holdfast.format.rows import run as run_rows
from holdfast.format.rows.run import RunRow
from holdfast.model import ids
from holdfast.operations import delegation, lookup
from holdfast.operations.delegation import DONE, FAILED, DelegationAnswer
from holdfast.runs.engine import RunEngine


async def prepare(core: RunEngine, result: Any) -> Any:
    """Return the result of a worker's run; that of delegated work as its contract encodes it."""
    life, taken = core.life, core.taken
    if life is not None and taken is not None and taken.call.is_delegated:
        offered = await lookup.load_live_record(core.ctx, core.tree)
        result, label = await contract_use.encode_answer(core.ctx, result, offered.header["origin"][2], None)
        life.answer = DelegationAnswer(DONE, result, label)
    return result


async def send(core: RunEngine, row: RunRow, write: RowWrite) -> None:
    """Save the answer of a delegated run that has ended, with the row that says so."""
    life, taken = core.life, core.taken
    if life is None or taken is None or not taken.call.is_delegated or row.state not in run_rows.OVER:
        return
    made = life.answer
    if row.state == run_rows.FAILED:
        assert row.failure is not None
        made = DelegationAnswer(FAILED, error=(row.failure.error_type.rpartition(".")[2], row.failure.message))
    assert made is not None
    offered = await lookup.load_live_record(core.ctx, core.tree)
    id_ = core.ctx.new_id(ids.tree_tag(core.tree))
    await delegation.answer(core.ctx, offered, core.lease, core.options.agent_id, made, id_, extra_rows=[write])
