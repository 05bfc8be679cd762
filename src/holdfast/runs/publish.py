"""publish: a message as an effect, carried out by the commit of the run's next checkpoint.

No intent is written ahead, as there is no doubt: ledger entry, message and checkpoint are one
commit. A resume, a fork or a replay that publishes the same again gets the recorded id. Within a
turn of a loop over messages, the message is published by the commit that consumes that turn's.
"""

from __future__ import annotations

from typing import Any

from holdfast.coordination import contract_use
from holdfast.coordination.message_stream import check_message
from holdfast.errors import UnsupportedValueError, UsageError
from holdfast.format.rows.ledger import LedgerEntry
from holdfast.format.state.run_journal import EFFECT, OK, JournalRecord
from holdfast.model import ids
from holdfast.model.effect import EffectKind, EffectState, OnRepeat
from holdfast.model.message import Message
from holdfast.operations import publish as publishing
from holdfast.runs import call_sites, ledger_match
from holdfast.runs import effect as effects
from holdfast.runs.effect import EffectExecution
from holdfast.runs.engine import RunEngine
from holdfast.runs.message_turns import PublishedInTurn


def _send(topic: str, value: Any, key: str | None, contract: str | None) -> None:
    """Name the arguments that identify a published message."""


class PublishCall:
    """A call of `publish`, made when `publish` is called: parallel calls are counted in order."""

    def __init__(self, core: RunEngine, path: str, message: Message) -> None:
        self.message = check_message(message)
        contract = message.contract
        plain = message.value if contract is None else contract.encode(message.value)
        label = None if contract is None else contract.label
        self.plain = publishing.PlainMessage(message, plain, label)
        try:
            self.effect = call_sites.build_effect_call(
                core, path, f"publish {message.topic}", _send, (message.topic, plain, message.key, label), {},
                kind=EffectKind.IRREVERSIBLE, key=None, identity=None, volatile=(), on_repeat=OnRepeat.REPLAY, was=(),
            )  # fmt: skip
        except UsageError as error:
            if isinstance(error.__cause__, UnsupportedValueError):
                raise error.__cause__.within("arguments.value", "value") from None
            raise


async def publish(core: RunEngine, call: PublishCall) -> str:
    """Return the id of the message that was published, or will be by the next commit."""
    if call.message.contract is not None:
        await contract_use.register(core.ctx, call.message.contract)
    published = core.turns.turn.published if core.turns.turn is not None else ()
    in_turn = next((turn for turn in published if turn.record.place == call.effect.place), None)
    if in_turn is not None:
        return ids.to_text(in_turn.message.id or b"")

    class Execution(_PublishExecution):
        given = call

    found: str = await effects.effect(core, call.effect, Execution)
    return found


class _PublishExecution(EffectExecution):
    """The execution of a publication: no intent, and the result in the next commit."""

    given: PublishCall

    async def _start(self, entry: LedgerEntry | None) -> LedgerEntry | None:
        duplicates = await ledger_match.possible_duplicates(self.core, self.call, entry)
        if duplicates:
            raise ledger_match.duplicate_error(self.core, self.call, duplicates)
        self._following = entry
        return await self._build_intent(entry)

    async def _call(self, started: LedgerEntry) -> Any:
        core, call = self.core, self.call
        id_ = self.ctx.new_id(ids.tree_tag(core.tree))
        message = await publishing.prepare(self.ctx, self.given.plain, id_=id_)
        text, now = ids.to_text(id_), self.ctx.now_us()
        payload = self.ctx.codec.encode(text)
        done = started.change("done", now, core.lease.holder, state=EffectState.DONE, result=payload)
        about = self._effect_fields()
        record = JournalRecord(call.place, EFFECT, OK, payload, started.attempts, self.started_us, now, about)
        if core.turns.turn is not None:
            core.turns.turn.published.append(PublishedInTurn(done, self._following, message, record))
            return text
        core.finish(done, self._following, message)
        await core.after_step(call.name, core.record(record))
        return text
