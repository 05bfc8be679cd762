"""Calls of which it is not known how they ended, where no ledger says so: the state itself does.

A call that changes something is noted in the state before it is made, and is taken out when it has ended and that is known.
Until then an equal call, of the same tool with the same identity, is the same one.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from holdfast.agents.tools import Tool
from holdfast.codec.codec import Codec
from holdfast.errors import UnsupportedValueError, UsageError
from holdfast.model import effects
from holdfast.model.agentstate import AgentState
from holdfast.model.transcript import ToolCall
from holdfast.objects import ledger
from holdfast.runs import calling

CALLS_IN_DOUBT = "calls_in_doubt"  # metadata of a state in a plain store


@dataclass(frozen=True, slots=True)
class Doubt:
    """A call that was started. `key` says which one of which message it is, `identity` what makes out that another is equal."""

    key: str
    tool: str
    identity: str

    def provider_key(self, session_id: str) -> str:
        """What the other side may tell repetitions of the call by."""
        return effects.provider_key(_encoded(session_id), self.tool, _encoded(self.key), 0, 0)


def of_call(tool: Tool, call: ToolCall, key: str) -> Doubt:
    arguments = dict(call.arguments or {})
    named = calling.bound(tool.fn, (), arguments)
    if tool.probe is not None:
        calling.bound(tool.probe, (), arguments)  # now: it will be asked when something has gone wrong
    identity = (tool.identity,) if isinstance(tool.identity, str) else tool.identity
    volatile = (tool.volatile,) if isinstance(tool.volatile, str) else tool.volatile
    try:
        digest = ledger.digest(Codec(), calling.chosen(named, identity, volatile, f"tool {tool.name!r:.60}"))
    except UnsupportedValueError as error:
        raise UsageError(
            f"tool {tool.name!r:.60}: what makes out that two calls are equal can't be written down: {error}. Name the arguments "
            "that can, by identity=(...), or those that can't, by volatile=(...)"
        ) from None
    return Doubt(key, tool.name, digest.hex())


def of_state(state: AgentState) -> list[Doubt]:
    return [Doubt(**one) for one in state.metadata.get(CALLS_IN_DOUBT, ())]


def equal_to(state: AgentState, asked: Doubt) -> Doubt | None:
    """The call in doubt that is the same as the one that is asked for."""
    same = (asked.tool, asked.identity)
    return next((one for one in of_state(state) if (one.tool, one.identity) == same), None)


def noted(state: AgentState, doubt: Doubt) -> AgentState:
    others = [one for one in of_state(state) if one.key != doubt.key]
    return state.with_metadata(CALLS_IN_DOUBT, [asdict(one) for one in (*others, doubt)])


def settled(state: AgentState, doubt: Doubt) -> AgentState:
    left = [asdict(one) for one in of_state(state) if one.key != doubt.key]
    return state.with_metadata(CALLS_IN_DOUBT, left) if left else state.without_metadata(CALLS_IN_DOUBT)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
