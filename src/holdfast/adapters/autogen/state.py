"""The state of an agent or team as plain data, and back.

`native` is AutoGen's own state. `messages` has the messages of all turns. A manager's thread mostly
has the same ones, and is not stored a second time then. `beside` has the states that AutoGen leaves
out: those of agents that are used as tools.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autogen_agentchat.messages import MessageFactory, StructuredMessage

if TYPE_CHECKING:
    from holdfast.adapters.autogen.journal import TeamJournal

THREAD = "message_thread"
_MOSTLY_EMPTY = ("metadata", "models_usage")


def dump_message(message: Any) -> dict[str, Any]:
    """Return a message as plain data, without the fields of every message that are empty in most."""
    fields: dict[str, Any] = dict(message.dump())
    return {name: value for name, value in fields.items() if name not in _MOSTLY_EMPTY or value}


def load_messages(target: Any, messages: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return messages of a turn; those of the target's own types, too."""
    factory = getattr(target, "_message_factory", None) or MessageFactory()
    content = getattr(target, "_output_content_type", None)
    if content is not None and not factory.is_registered(StructuredMessage[content]):
        factory.register(StructuredMessage[content])
    return [factory.create(message) for message in messages]


async def save_state(journal: TeamJournal, messages: list[dict[str, Any]]) -> dict[str, Any]:
    native = dict(await journal.target.save_state())
    agents = native.get("agent_states")
    if isinstance(agents, Mapping):
        native["agent_states"] = {name: _without_thread(state, messages) for name, state in agents.items()}
    state = {"messages": messages, "native": native}
    if journal.beside:
        state["beside"] = {name: dict(await one.save_state()) for name, one in journal.beside.items()}
    return state


async def load_state(journal: TeamJournal, state: Mapping[str, Any]) -> None:
    for team in journal.teams:  # a run that was cut off leaves counts in the condition, which no state has
        if team._termination_condition is not None:
            await team._termination_condition.reset()
    await journal.target.load_state(restore_threads(state))
    for name, saved in state.get("beside", {}).items():
        if name in journal.beside:
            await journal.beside[name].load_state(saved)


def restore_threads(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return AutoGen's own state, with the thread of its manager."""
    native = dict(state["native"])
    agents = native.get("agent_states")
    if isinstance(agents, Mapping):
        native["agent_states"] = {
            name: {**one, THREAD: state["messages"]}
            if isinstance(one, Mapping) and one.get(THREAD, ()) is None
            else one
            for name, one in agents.items()
        }
    return native


def _without_thread(state: Mapping[str, Any], messages: list[dict[str, Any]]) -> Mapping[str, Any]:
    """Return a manager's state without its thread, if that has the same messages."""
    thread = state.get(THREAD)
    if not thread or [one.get("id") for one in thread] != [one.get("id") for one in messages]:
        return state
    return {**state, THREAD: None}
