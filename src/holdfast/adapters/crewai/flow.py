"""A flow whose methods are recorded, each with its result and its changes of the state."""

from __future__ import annotations

import asyncio
import copy
import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any

from crewai.flow.async_feedback import HumanFeedbackPending
from pydantic import BaseModel

from holdfast.adapters.base.call_order import CallOrder
from holdfast.adapters.base.session import ResumableSession, TurnEnd
from holdfast.adapters.base.shared_target import FirstStates, hold
from holdfast.adapters.base.turn import FrameworkTurn
from holdfast.adapters.crewai.credentials import strip_credentials
from holdfast.adapters.crewai.journal import AgentTalk, CrewJournal
from holdfast.adapters.crewai.people import FlowPeople
from holdfast.adapters.crewai.result import dump_value, load_value
from holdfast.backends.bridge.step import run_inline
from holdfast.errors import UsageError

ENTRY = "kickoff"
ORDER = "methods"
"""The key of the state that has the methods of an unfinished kickoff which have ended, in their order."""
_first: FirstStates[dict[str, Any]] = FirstStates()  # states of flows before their first kickoff


class ResumableFlow:
    """A flow and its kickoffs in a store: each begins with the state that the one before has left."""

    def __init__(self, flow: Any, session: ResumableSession) -> None:
        self.flow = flow
        self._session = session

    def kickoff(self, inputs: dict[str, Any] | None = None, *, turn: str | None = None, **options: Any) -> Any:
        """Kick the flow off, or continue; a finished kickoff returns its recorded result."""

        def body(turn_: FrameworkTurn) -> TurnEnd:
            recorder = FlowRecorder(self.flow, turn_)
            with recorder.attach():
                result = recorder.journal.run(lambda: self.flow.kickoff(inputs=inputs, **options))
            return recorder.end(result)

        self._refuse(inputs)
        with hold([self.flow], "flow"):
            return self._session.take_turn_sync(ENTRY, inputs, turn, body, self._load)

    async def kickoff_async(
        self, inputs: dict[str, Any] | None = None, *, turn: str | None = None, **options: Any
    ) -> Any:
        """`kickoff` in the running event loop, where asynchronous methods of the flow run."""

        async def body(turn_: FrameworkTurn) -> TurnEnd:
            recorder = FlowRecorder(self.flow, turn_)
            with recorder.attach(), recorder.journal.recording():
                # A task of its own: CrewAI leaves events open in its context if it is interrupted.
                result = await asyncio.create_task(self.flow.kickoff_async(inputs=inputs, **options))
            return recorder.end(result)

        self._refuse(inputs)
        with hold([self.flow], "flow"):
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
        self._order = CallOrder(turn, ORDER)

    @contextmanager
    def attach(self) -> Iterator[None]:
        """Put the recorded state into the flow, and record its methods."""
        # Private: a flow offers no hook around its methods and its providers of feedback.
        flow, methods = self._flow, dict(self._flow._methods)
        first = _first.take(flow, lambda: _whole_state(flow))
        before = self._turn.state.get("flow") or strip_credentials(first)
        run_inline(self._turn.call_part("flow", lambda: before, load=lambda begun: restore_state(flow, begun, first)))
        self._known = dump_state(flow)
        own_input, find_provider = flow.input_provider, flow._resolve_feedback_provider
        for name, method in methods.items():
            flow._methods[name] = self._record_method(str(name), method)
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

    def _record_method(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call_sync(*args: Any, **kwargs: Any) -> Any:
            made: list[Any] = []

            def run() -> Any:
                made.append(method(*args, **kwargs))
                return self._dump_method(made[0])

            return run_inline(self._turn.call_part(name, run, load=functools.partial(self._load_method, made)))

        async def call_async(*args: Any, **kwargs: Any) -> Any:
            made: list[Any] = []

            async def run() -> Any:
                made.append(await method(*args, **kwargs))
                return self._dump_method(made[0])

            return await self._turn.call_part(name, run, load=functools.partial(self._load_method, made))

        @functools.wraps(method)
        async def call_in_order(*args: Any, **kwargs: Any) -> Any:
            async with self._order.hold(name):
                if asyncio.iscoroutinefunction(method):
                    return await call_async(*args, **kwargs)
                # In a thread, as CrewAI calls it.
                return await asyncio.to_thread(copy_context().run, call_sync, *args, **kwargs)

        return call_in_order

    def _dump_method(self, result: Any) -> dict[str, Any]:
        with self._lock:
            state, messages = dump_state(self._flow), self._talk.take()
            changes = compare_states(self._known, state)
            self._known = state
            self._messages += messages
        return {"method": dump_value(result), "state": changes, "messages": messages}

    def _load_method(self, made: list[Any], recorded: Mapping[str, Any]) -> Any:
        """Return the result of a method: the one `made` in this life, or the recorded one."""
        if made:
            return made[0]
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


def restore_state(flow: Any, stored: Mapping[str, Any], first: Mapping[str, Any] | None = None) -> None:
    """Put a stored state into the flow, in the flow's own form.

    `first` has the values of what is not stored. Without it, the flow keeps those that it has.
    """
    state = flow.state
    if not isinstance(state, BaseModel):
        known = dump_state(flow) if first is None else state
        for name in [name for name in known if name not in stored]:
            del state[name]
    others = {name: _copy_containers(value) for name, value in (first or {}).items() if name not in stored}
    _set_fields(state, {**others, **copy.deepcopy(dict(stored))})


def _whole_state(flow: Any) -> dict[str, Any]:
    """Return a copy of the flow's state as a dict, credentials included: it stays in memory."""
    state = flow.state
    fields = state.model_dump() if isinstance(state, BaseModel) else dict(state)
    return _copy_containers(fields)  # type: ignore[no-any-return]  # of a dict it is a dict


def _copy_containers(value: Any) -> Any:
    """Return a value with its containers copied; other objects may refuse to be."""
    if type(value) is dict:
        return {name: _copy_containers(item) for name, item in value.items()}
    return [_copy_containers(item) for item in value] if type(value) is list else value


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
