"""What AutoGen's state repeats of the conversation, stored once.

In a team, the manager's thread and the model context of each agent have the same messages. Each is
replaced by its length if the conversation tells what is in it, and stored as it is if not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Messages = Sequence[Mapping[str, Any]]
_THREAD = "message_thread"
_CONTEXT = "llm_context"


def drop_shared(native: Mapping[str, Any], messages: Messages, name: str) -> dict[str, Any]:
    """Return AutoGen's state of the agent or team `name`, without what `messages` has."""

    def drop(found: Any, shared: list[Any]) -> Any:
        return len(found) if found and _is_same(found, shared[: len(found)]) else found

    return _change_agent_messages(native, messages, name, drop)


def restore_shared(native: Mapping[str, Any], messages: Messages, name: str) -> dict[str, Any]:
    """Return AutoGen's state as `drop_shared` was given it."""

    def restore(found: Any, shared: list[Any]) -> Any:
        return shared[:found] if isinstance(found, int) else found

    return _change_agent_messages(native, messages, name, restore)


def share_context(state: Mapping[str, Any], first: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a state that a team can load, of one whose conversation came from another framework.

    That has the model context of one agent. Each agent of the team gets it: `first` is the team's own
    state before its first turn.
    """
    given = state["native"]
    if "agent_states" in given or _CONTEXT not in given:
        return state
    agents = {name: _with_context(value, given[_CONTEXT]) for name, value in first["native"]["agent_states"].items()}
    return {**state, "native": {**first["native"], "agent_states": agents}}


def _with_context(native: Any, context: Any) -> Any:
    inner = native.get("agent_state") if isinstance(native, Mapping) else None
    if not isinstance(inner, Mapping) or _CONTEXT not in inner:
        return native
    return {**native, "agent_state": {**inner, _CONTEXT: context}}


def is_shared(context: Messages, messages: Messages, name: str) -> bool:
    """Return whether messages of an agent's context are what these messages of the conversation tell."""
    return _is_same(context, list(_context_of(messages, name)))


def _change_agent_messages(
    native: Any, messages: Messages, name: str, change: Callable[[Any, list[Any]], Any]
) -> dict[str, Any]:
    state = dict(native)
    if _THREAD in state:
        state[_THREAD] = change(state[_THREAD], list(messages))
    context = state.get(_CONTEXT)
    if isinstance(context, Mapping) and "messages" in context:
        shared = list(_context_of(messages, name))
        state[_CONTEXT] = {**context, "messages": change(context["messages"], shared)}
    if isinstance(state.get("agent_state"), Mapping):  # of an agent in a team
        state["agent_state"] = _change_agent_messages(state["agent_state"], messages, name, change)
    if isinstance(state.get("agent_states"), Mapping):
        agents = state["agent_states"].items()
        state["agent_states"] = {item: _change_agent_messages(agent, messages, item, change) for item, agent in agents}
    return state


def _context_of(messages: Messages, name: str) -> Iterator[dict[str, Any]]:
    """Yield what an agent's model is sent of a conversation, if the agent keeps all of it."""
    thought: dict[str, Any] = {}
    for message in messages:
        kind, content = message.get("type"), message.get("content")
        if message.get("source") != name:
            if kind in ("TextMessage", "StopMessage", "HandoffMessage", "ToolCallSummaryMessage"):
                yield from message.get("context") or ()
                yield {"content": content, "source": message.get("source"), "type": "UserMessage"}
        elif kind == "ThoughtEvent":
            thought = {"thought": content}
        elif kind in ("ToolCallRequestEvent", "TextMessage"):
            yield {"content": content, **thought, "source": name, "type": "AssistantMessage"}
            thought = {}
        elif kind == "ToolCallExecutionEvent":
            yield {"content": content, "type": "FunctionExecutionResultMessage"}


def _is_same(found: Sequence[Any], shared: Sequence[Any]) -> bool:
    return len(found) == len(shared) and all(map(_is_same_message, found, shared))


def _is_same_message(found: Any, shared: Any) -> bool:
    if "id" in found:  # a message of a thread
        return bool(found["id"] == shared.get("id"))
    return bool({name: value for name, value in found.items() if value is not None} == shared)
