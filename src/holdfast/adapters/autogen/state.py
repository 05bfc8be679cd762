"""The state of an agent or team as plain data, and back.

`messages` has the messages of all turns. `native` is AutoGen's own state, without what it repeats of
them. `beside` has the states that AutoGen leaves out: those of agents that are used as tools.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import MessageFactory, StructuredMessage
from autogen_core.model_context import UnboundedChatCompletionContext

from holdfast.adapters.autogen.shared_messages import drop_shared, is_shared, restore_shared

if TYPE_CHECKING:
    from holdfast.adapters.autogen.journal import TeamJournal

_MOSTLY_EMPTY = ("metadata", "models_usage")


def dump_message(message: Any) -> dict[str, Any]:
    """Return a message as plain data, without the fields of every message that are empty in most."""
    fields: dict[str, Any] = dict(message.dump())
    return {name: value for name, value in fields.items() if name not in _MOSTLY_EMPTY or value}


def load_messages(target: Any, messages: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return messages of a turn; those of the target's own types, too."""
    # Private: a team shows neither the types of its messages nor its conditions otherwise.
    factory = getattr(target, "_message_factory", None) or MessageFactory()
    content = getattr(target, "_output_content_type", None)
    if content is not None and not factory.is_registered(StructuredMessage[content]):
        factory.register(StructuredMessage[content])
    return [factory.create(message) for message in messages]


async def save_state(journal: TeamJournal, before: list[dict[str, Any]], added: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the state without `messages`, which are those before the turn and those that it added."""
    native = await _save_context(journal, added)
    if native is None:
        native = drop_shared(await journal.target.save_state(), [*before, *added], journal.target.name)
    state = {"native": native}
    if journal.extra_states:
        state["beside"] = {name: dict(await value.save_state()) for name, value in journal.extra_states.items()}
    return state


async def load_state(journal: TeamJournal, state: Mapping[str, Any]) -> None:
    for team in journal.teams:  # a run that was cut off leaves counts in the condition, which no state has
        if team._termination_condition is not None:
            await team._termination_condition.reset()
    await journal.target.load_state(restore_shared(state["native"], state["messages"], journal.target.name))
    context = _plain_context(journal.target)
    if context is not None:
        journal.loaded = list(context._messages)
        kept = state["native"].get("llm_context", {}).get("messages")
        journal.is_shared = isinstance(kept, int) or not kept
        journal.digests.set_history(journal.loaded)
    for name, saved in state.get("beside", {}).items():
        if name in journal.extra_states:
            await journal.extra_states[name].load_state(saved)


async def _save_context(journal: TeamJournal, added: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the state of a single agent that has heard the whole conversation, and that only; else None.

    AutoGen would convert all of its messages once more, which takes milliseconds after many turns.
    """
    context = _plain_context(journal.target)
    if context is None or not journal.is_shared:
        return None
    messages, count = context._messages, len(journal.loaded)
    if len(messages) < count or not all(map(operator.is_, messages, journal.loaded)):
        return None
    if not is_shared([message.model_dump() for message in messages[count:]], added, journal.target.name):
        return None
    context._messages = []
    try:
        native = dict(await journal.target.save_state())
    finally:
        context._messages = messages
    native["llm_context"] = {**native["llm_context"], "messages": len(messages)}
    return native


def _plain_context(target: Any) -> Any:
    """Return the model context of a single agent, if it is the one that keeps all messages as they are."""
    context = getattr(target, "_model_context", None) if type(target) is AssistantAgent else None
    return context if type(context) is UnboundedChatCompletionContext else None
