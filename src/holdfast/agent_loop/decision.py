"""A decision of the model: one tool call of one of its messages, and which other calls it may repeat.

Calls of one message are decided together, so they are different decisions, even with equal
arguments. A call of a later message may repeat an equal one whose outcome is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from holdfast.agent_loop.tool import Tool
from holdfast.model import transcript
from holdfast.model.agent_state import AgentState
from holdfast.model.transcript import ToolCall
from holdfast.model.transcript_repair import CallOutcome

DOUBTED = (CallOutcome.UNKNOWN, CallOutcome.MAY_BE_REPEATED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDecision:
    """A tool call. `key` is the same whenever the same call of the same message is meant.

    `doubted` are earlier calls of the same tool whose outcome is unknown: those of the same
    message, and with `is_earlier` those of the messages before.
    """

    tool: Tool
    call: ToolCall
    key: str
    is_earlier: bool = False
    doubted: Sequence[ModelDecision] = ()

    @property
    def doubted_with(self) -> list[ModelDecision]:
        return [decision for decision in self.doubted if not decision.is_earlier]

    def within(self, key: str) -> ModelDecision:
        """Return the decision as one of a sub-agent that answers the call of that key."""
        return replace(self, key=f"{key}/{self.key}", doubted=[decision.within(key) for decision in self.doubted])


def decision_of(state: AgentState, tool: Tool, call: ToolCall) -> ModelDecision:
    """Return the decision that an open call of the conversation is."""
    doubted: list[ModelDecision] = []
    for turn in transcript.split_turns(state.messages):
        is_own = any(tool_call.id == call.id for tool_call in turn.open)
        for tool_call, answered in zip(turn.calls, turn.answers, strict=True):
            if (
                tool_call.name == call.name
                and answered is not None
                and _is_doubted(state, answered[0], tool, tool_call)
            ):
                doubted.append(
                    ModelDecision(
                        tool=tool, call=tool_call, key=_key(state, turn.index, tool_call), is_earlier=not is_own
                    )
                )
        if is_own:
            return ModelDecision(tool=tool, call=call, key=_key(state, turn.index, call), doubted=doubted)
    return ModelDecision(tool=tool, call=call, key=call.id)


def key_of_open_call(state: AgentState, call: ToolCall) -> str:
    """Return the key of an open call, also if its tool is gone."""
    turns = transcript.split_turns(state.messages)
    own = next((turn for turn in turns if any(tool_call.id == call.id for tool_call in turn.open)), None)
    return call.id if own is None else _key(state, own.index, call)


def _key(state: AgentState, index: int, call: ToolCall) -> str:
    """Some models number their calls from the beginning in each message: the message is part of the key."""
    return f"{state.messages[index].get('id', index)}/{call.id}"


def _is_doubted(state: AgentState, index: int, tool: Tool, call: ToolCall) -> bool:
    """Return whether a call was answered with an unknown outcome, and the tool still accepts it."""
    is_unknown = state.messages[index].get("metadata", {}).get("fate") in DOUBTED
    return is_unknown and call.arguments is not None and tool.find_argument_error(call.arguments) is None
