"""A flow whose methods are recorded, each with its result and its changes of the state."""

from __future__ import annotations

import asyncio
import copy
import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from crewai.flow.async_feedback import HumanFeedbackPending
from pydantic import BaseModel

from holdfast.adapters.base.session import ResumableSession, TurnEnd
from holdfast.adapters.base.turn import FrameworkTurn
from holdfast.adapters.crewai.credentials import strip_credentials
from holdfast.adapters.crewai.journal import AgentTalk, CrewJournal
from holdfast.adapters.crewai.people import FlowPeople
from holdfast.adapters.crewai.result import dump_value, load_value
from holdfast.backends.bridge.step import run_inline
from holdfast.errors import UsageError

ENTRY = "kickoff"


class ResumableFlow:
    """A flow and its kickoffs in a store: each begins with the state that the one before has left."""

    def __init__(self, flow: Any, session: ResumableSession) -> None:
        self.flow = flow
        self._session = session

    def kickoff(self, inputs: dict[str, Any] | None = None, *, turn: str | None = None, **options: Any) -> Any:
        """Kick the flow off, or continue; a finished kickoff returns its recorded result."""

        def body(turn_: FrameworkTurn) -> TurnEnd:
            recorder = FlowRecorder(self.flow, turn_)
            with recorder.attached():
                result = recorder.journal.run(lambda: self.flow.kickoff(inputs=inputs, **options))
            return recorder.end(result)

        self._refuse(inputs)
        return self._session.take_turn_sync(ENTRY, inputs, turn, body, self._load)

    async def kickoff_async(
        self, inputs: dict[str, Any] | None = None, *, turn: str | None = None, **options: Any
    ) -> Any:
        """`kickoff` in the running event loop, where asynchronous methods of the flow run."""

        async def body(turn_: FrameworkTurn) -> TurnEnd:
            recorder = FlowRecorder(self.flow, turn_)
            with recorder.attached(), recorder.journal.recording():
                # A task of its own: CrewAI leaves events open in its context if it is interrupted.
                result = await asyncio.create_task(self.flow.kickoff_async(inputs=inputs, **options))
            return recorder.end(result)

        self._refuse(inputs)
        return await self._session.take_turn(ENTRY, inputs, turn, body, self._load)

    def _load(self, recorded: Any) -> Any:
        restore_state(self.flow, self._session.state["flow"])
        return load_value(recorded)

    def _refuse(self, inputs: dict[str, Any] | None) -> None:
        if self.flow.stream:
            raise UsageError(
                "the flow has stream=True: a resumable flow returns whole results. Set flow.stream = False"
            )
        if inputs and "id" in inputs and self.flow.persistence is not None:
            raise UsageError(
                "inputs has an id, with which CrewAI loads a state from the flow's persistence: the session of a "
                "resumable flow has the state. Leave the id out"
            )


class FlowRecorder:
    """One kickoff of a flow: its methods, and the people that it asks."""

    def __init__(self, flow: Any, turn: FrameworkTurn) -> None:
        self.journal = CrewJournal(turn)
        self._talk = self.journal.talk = AgentTalk()
        self._flow = flow
        self._turn = turn
        self._messages: list[dict[str, Any]] = []
        self._known: dict[str, Any] = {}  # the state after the last method that was recorded
        self._lock = threading.Lock()

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Put the recorded state into the flow, and record its methods."""
        flow, methods = self._flow, dict(self._flow._methods)
        before = self._turn.state.get("flow") or dump_state(flow)
        begun = run_inline(self._turn.call_part("flow", lambda: before))
        restore_state(flow, begun)
        self._known = dump_state(flow)
        own_input, find_provider = flow.input_provider, flow._resolve_feedback_provider
        for name, method in methods.items():
            flow._methods[name] = self._recorded(str(name), method)
        flow.input_provider = FlowPeople(self.journal, own_input)
        # The only way to give a flow that someone else has defined another person to ask.
        flow._resolve_feedback_provider = lambda about: FlowPeople(self.journal, find_provider(about))
        try:
            yield
        finally:
            flow._methods.update(methods)
            flow.input_provider = own_input
            del flow._resolve_feedback_provider

    def end(self, result: Any) -> TurnEnd:
        if isinstance(result, HumanFeedbackPending):  # raised by a method, not by a provider
            raise result
        added = [*self._messages, *self._talk.take()]
        return TurnEnd(result, dump_value(result), {"flow": dump_state(self._flow)}, {"messages": added})

    def _recorded(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            made: list[Any] = []

            def run() -> Any:
                made.append(method(*args, **kwargs))
                return self._dump_method(made[0])

            recorded = run_inline(self._turn.call_part(name, run))
            return made[0] if made else self._load_method(recorded)

        @functools.wraps(method)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            made: list[Any] = []

            async def run() -> Any:
                made.append(await method(*args, **kwargs))
                return self._dump_method(made[0])

            recorded = await self._turn.call_part(name, run)
            return made[0] if made else self._load_method(recorded)

        return call_async if asyncio.iscoroutinefunction(method) else call

    def _dump_method(self, result: Any) -> dict[str, Any]:
        with self._lock:
            state, messages = dump_state(self._flow), self._talk.take()
            changes = compare_states(self._known, state)
            self._known = state
            self._messages += messages
        return {"method": dump_value(result), "state": changes, "messages": messages}

    def _load_method(self, recorded: Mapping[str, Any]) -> Any:
        with self._lock:
            apply_changes(self._flow, recorded["state"])
            self._known = dump_state(self._flow)
            self._messages += recorded["messages"]
        return load_value(recorded["method"])


# -- states ------------------------------------------------------------------------------------------------------------


def dump_state(flow: Any) -> dict[str, Any]:
    """Return a copy of the flow's state as a dict, without credentials."""
    state = flow.state
    return dict(strip_credentials(state.model_dump() if isinstance(state, BaseModel) else copy.deepcopy(dict(state))))


def restore_state(flow: Any, stored: Mapping[str, Any]) -> None:
    """Put a stored state into the flow, in the flow's own form."""
    state = flow.state
    if not isinstance(state, BaseModel):
        for name in [one for one in dump_state(flow) if one not in stored]:
            del state[name]
    _set_fields(state, copy.deepcopy(dict(stored)))


def compare_states(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return what changed: values, what was added to lists, and names that are gone."""
    changes: dict[str, Any] = {"set": {}, "added": {}, "gone": [name for name in before if name not in after]}
    for name, value in after.items():
        old = before.get(name)
        if name in before and old == value:
            continue
        if isinstance(old, list) and isinstance(value, list) and old and value[: len(old)] == old:
            changes["added"][name] = [len(old), value[len(old) :]]
        else:
            changes["set"][name] = value
    return {name: value for name, value in changes.items() if value}


def apply_changes(flow: Any, changes: Mapping[str, Any]) -> None:
    state, known = flow.state, dump_state(flow)
    added = {name: [*known.get(name, [])[:length], *new] for name, (length, new) in changes.get("added", {}).items()}
    for name in changes.get("gone", ()):
        state.pop(name, None)
    _set_fields(state, copy.deepcopy({**changes.get("set", {}), **added}))


def _set_fields(state: Any, values: Mapping[str, Any]) -> None:
    if not isinstance(state, BaseModel):
        state.update(values)
        return
    whole = type(state).model_validate({**state.model_dump(), **values})
    for name in values:
        setattr(state, name, getattr(whole, name))
