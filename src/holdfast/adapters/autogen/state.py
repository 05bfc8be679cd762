"""The state of an agent or team as plain data, and back.

`messages` has the messages of all turns. `native` is AutoGen's own state, without what it repeats of
them. `beside` has the states that AutoGen leaves out: those of agents that are used as tools.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autogen_agentchat.messages import MessageFactory, StructuredMessage

from holdfast.adapters.autogen.shared_messages import drop_shared, restore_shared

if TYPE_CHECKING:
    from holdfast.adapters.autogen.journal import TeamJournal

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
    native = drop_shared(await journal.target.save_state(), messages, journal.target.name)
    state = {"messages": messages, "native": native}
    if journal.beside:
        state["beside"] = {name: dict(await one.save_state()) for name, one in journal.beside.items()}
    return state


async def load_state(journal: TeamJournal, state: Mapping[str, Any]) -> None:
    for team in journal.teams:  # a run that was cut off leaves counts in the condition, which no state has
        if team._termination_condition is not None:
            await team._termination_condition.reset()
    await journal.target.load_state(restore_shared(state["native"], state["messages"], journal.target.name))
    for name, saved in state.get("beside", {}).items():
        if name in journal.beside:
            await journal.beside[name].load_state(saved)
