"""Calls with an unknown outcome, recorded in the state itself where there is no ledger.

A call that changes something is noted in the state before it is made, and removed once its outcome
is known. Until then an equal call of a later message (same tool, same identity) is the same call.
If the tool's kind is not declared, it is a new decision instead.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from holdfast.agent_loop.decision import ModelDecision
from holdfast.codec.codec import Codec
from holdfast.errors import UnsupportedValueError, UsageError
from holdfast.format.rows import ledger
from holdfast.model import effect
from holdfast.model.agent_state import AgentState
from holdfast.runs import call_binding

CALLS_IN_DOUBT = "calls_in_doubt"  # metadata of a state in a plain store


@dataclass(frozen=True, slots=True)
class UnknownCall:
    """A call that was started.

    `key` is its message and its position there; calls with the same `identity` are equal.
    """

    key: str
    tool: str
    identity: str

    def provider_key(self, session_id: str) -> str:
        """Return the idempotency key by which the other side can recognise repetitions of the call."""
        return effect.provider_key(_encode_text(session_id), self.tool, _encode_text(self.key), 0, 0)


def make_unknown_call(decision: ModelDecision) -> UnknownCall:
    tool, arguments = decision.tool, dict(decision.call.arguments or {})
    named = call_binding.bind_arguments(tool.fn, (), arguments)
    if tool.probe is not None:
        call_binding.bind_arguments(tool.probe, (), arguments)  # now: it will be asked when something has gone wrong
    identity = (tool.identity,) if isinstance(tool.identity, str) else tool.identity
    volatile = (tool.volatile,) if isinstance(tool.volatile, str) else tool.volatile
    try:
        digest = ledger.digest(
            Codec(), call_binding.choose_arguments(named, identity, volatile, f"tool {tool.name!r:.60}")
        )
    except UnsupportedValueError as error:
        raise UsageError(
            f"tool {tool.name!r:.60}: what makes out that two calls are equal can't be written down: "
            f"{error}. Name the arguments "
            "that can, by identity=(...), or those that can't, by volatile=(...)"
        ) from None
    return UnknownCall(decision.key, tool.name, digest.hex())


def read_calls(state: AgentState) -> list[UnknownCall]:
    return [UnknownCall(**item) for item in state.metadata.get(CALLS_IN_DOUBT, ())]


def repeated_by(state: AgentState, decision: ModelDecision, asked: UnknownCall) -> UnknownCall | None:
    """Return the call with an unknown outcome that a decision may repeat.

    Equal calls of its own message are already matched to the first ones.
    """
    own = next((unknown_call for unknown_call in read_calls(state) if unknown_call.key == asked.key), None)
    if own is not None or not decision.tool.is_declared:
        return own
    same = [
        unknown_call
        for unknown_call in read_calls(state)
        if (unknown_call.tool, unknown_call.identity) == (asked.tool, asked.identity)
    ]
    count = sum(make_unknown_call(item).identity == asked.identity for item in decision.doubted_with)
    return next(iter(same[count:]), None)


def is_repetition(decision: ModelDecision) -> bool:
    """Return whether the model repeats a call of an earlier message whose answer was an unknown outcome."""
    identity = make_unknown_call(decision).identity
    return any(make_unknown_call(item).identity == identity for item in decision.doubted if item.is_earlier)


def note_doubt(state: AgentState, doubt: UnknownCall) -> AgentState:
    """Return the state with a doubt: in its old place, if it was there."""
    known = {unknown_call.key: unknown_call for unknown_call in read_calls(state)} | {doubt.key: doubt}
    return state.with_metadata(CALLS_IN_DOUBT, [asdict(unknown_call) for unknown_call in known.values()])


def settle_doubt(state: AgentState, doubt: UnknownCall) -> AgentState:
    left = [asdict(unknown_call) for unknown_call in read_calls(state) if unknown_call.key != doubt.key]
    return state.with_metadata(CALLS_IN_DOUBT, left) if left else state.without_metadata(CALLS_IN_DOUBT)


def _encode_text(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
