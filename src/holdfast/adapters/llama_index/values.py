"""State, events and work in progress of a workflow as plain data, and back.

The framework looks classes up by their stored names, and imports their modules. Here a stored name
only selects among classes that the program has: its events, its state, and those that it allows.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, get_type_hints

from pydantic import BaseModel
from workflows import Workflow
from workflows.context.context_types import CURRENT_SERIALIZED_VERSION
from workflows.context.serializers import JsonSerializer, PickleSerializer
from workflows.context.state_store import DictState, infer_state_type
from workflows.events import Event, StopEvent
from workflows.runtime.types.internal_state import BrokerState

from holdfast.adapters.base.recorded_text import RecordedTexts
from holdfast.adapters.llama_index.dumped_list import DumpedList
from holdfast.errors import UsageError

MESSAGES = "messages"
"""The value of a workflow's state that is stored as the conversation, message by message."""
_JSON = "$json"
_NOT_KEPT = {"state", "elapsed_alive", "last_alive_stamp"}  # of a run; each life has the whole timeout
_UNLISTED = f"{__name__}.UNLISTED"
UNLISTED = JsonSerializer  # a class that no workflow allows: a serializer that finds it imports any module


class DeclaredTypes(JsonSerializer):
    """A serializer that makes objects of the program's own classes only, and of those that it allows.

    A class that was stored under another module's name is found by its own name, if only one has
    it: a script that is imported as a module later still finds what it has stored as `__main__`.
    """

    def __init__(self, types: tuple[type[Any], ...], allowed: JsonSerializer | None = None) -> None:
        super().__init__(allowed_types=types)
        self._types = types
        self._allowed = allowed
        self._checked: set[type[Any]] = set()

    @classmethod
    def of(cls, workflow: Workflow) -> DeclaredTypes:
        """Return the serializer of a workflow, which allows what its own serializer allows."""
        given = workflow.serializer
        if given is not None and (not isinstance(given, JsonSerializer) or isinstance(given, PickleSerializer)):
            raise UsageError(
                f"the workflow has a {type(given).__name__}: the store keeps plain data only, and executes none of "
                "it. Give it a JsonSerializer(allowed_types=[...])"
            )
        if given is not None and _resolves(given, _UNLISTED):
            raise UsageError(
                "the workflow has a JsonSerializer() without allowed_types, which imports any class that a store "
                "names. Name the classes: JsonSerializer(allowed_types=[...]); events and the state need no mention"
            )
        state = infer_state_type(workflow)
        return cls(tuple({*workflow.events, state} - {DictState}), given)

    def with_results_of(self, function: Callable[..., Any]) -> DeclaredTypes:
        """Return a serializer that also knows the class that a function is annotated to return."""
        try:
            found = get_type_hints(getattr(function, "__func__", function)).get("return")
        except (NameError, TypeError):
            return self
        if not inspect.isclass(found) or not issubclass(found, BaseModel) or found in self._types:
            return self
        return DeclaredTypes((*self._types, found), self._allowed)

    def resolve_class(self, qualified_name: str) -> type[Any]:
        try:
            found: type[Any] = super().resolve_class(qualified_name)
        except ValueError:
            known = self._find_loaded(qualified_name)
            if known is None:
                raise
            found = known
        return found

    def _find_loaded(self, qualified_name: str) -> type[Any] | None:
        """Return a class that the program allows, or that is among its own events and states."""
        if self._allowed is not None and _resolves(self._allowed, qualified_name):
            allowed: type[Any] = self._allowed.resolve_class(qualified_name)
            return allowed
        known = {*self._types, *_subclasses(Event)}
        exactly = [class_ for class_ in known if f"{class_.__module__}.{class_.__qualname__}" == qualified_name]
        by_name = [class_ for class_ in known if class_.__name__ == qualified_name.rpartition(".")[2]]
        found = exactly or by_name
        return found[0] if len(found) == 1 else None

    def serialize_value(self, value: Any) -> Any:
        tree = super().serialize_value(value)
        if isinstance(value, BaseModel) and type(value) not in self._checked:
            self._check(tree["qualified_name"], type(value))
        return tree

    def serialize(self, value: Any) -> str:
        return json.dumps(self.serialize_value(value))  # without the framework's "Failed to serialize value"

    def _check(self, name: str, kind: type[Any]) -> None:
        """Raise if an object could not be made again from what would be stored."""
        if not _resolves(self, name) or self.resolve_class(name) is not kind:
            raise UsageError(
                f"a {kind.__qualname__} can't be saved: nothing says that the workflow may make objects of this class "
                "from stored data. Annotate it as the state (`Context[State]`) or as the result of the function that "
                "returns it, or allow it: Workflow(serializer=JsonSerializer(allowed_types=[...]))"
            )
        self._checked.add(kind)


def _resolves(serializer: JsonSerializer, name: str) -> bool:
    try:
        serializer.resolve_class(name)
    except (ValueError, ImportError, AttributeError):
        return False
    return True


def _subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    for subclass in kind.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


# -- the state ---------------------------------------------------------------------------------------------------------


def dump_state(model: BaseModel, serializer: JsonSerializer, messages: DumpedList) -> dict[str, Any]:
    """Return a context's state as the keys `state` and `messages`; `messages` has the last dump."""
    if not isinstance(model, DictState):
        dumped = split_messages(serializer.serialize_value(model))
        return {**dumped, MESSAGES: messages.update(dumped[MESSAGES], lambda item: item)}
    values = dict(model.items())
    listed = values.pop(MESSAGES) if type(values.get(MESSAGES)) is list else None
    tree = {"value": {name: serializer.serialize_value(value) for name, value in values.items()}}
    state = {**tree, "has_messages": listed is not None}
    return {"state": state, MESSAGES: messages.update(listed or (), serializer.serialize_value)}


def split_messages(tree: dict[str, Any]) -> dict[str, Any]:
    """Return a dumped state with the messages beside it, so that each of them is stored once."""
    values = dict(tree["value"])
    messages = values.pop(MESSAGES) if type(values.get(MESSAGES)) is list else None
    return {"state": {**tree, "value": values, "has_messages": messages is not None}, MESSAGES: messages or []}


def load_state(saved: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the keys `state` and `messages` as the `state` of a serialized context; None without any."""
    if "state" not in saved:
        return None
    tree = dict(saved["state"])
    values = dict(tree["value"])
    if tree.pop("has_messages", False):
        values[MESSAGES] = saved[MESSAGES]
    if "qualified_name" in tree:
        return {"store_type": "in_memory", "state_data": {**tree, "value": values, "_tree": "model"}}
    return {"store_type": "in_memory", "state_data": {"_data": values, "_tree": "dict"}}


def load_live_state(
    saved: Mapping[str, Any], messages: Sequence[Any], serializer: JsonSerializer
) -> dict[str, Any] | None:
    """Return what `load_state` does, with messages that are loaded already; None if the state has a class."""
    if "state" not in saved or "qualified_name" in saved["state"]:
        return None
    tree = saved["state"]
    values = {name: serializer.deserialize_value(value) for name, value in tree["value"].items()}
    if tree.get("has_messages"):
        values[MESSAGES] = list(messages)
    return {"store_type": "in_memory", "state_data": DictState(_data=values)}


# -- work in progress --------------------------------------------------------------------------------------------------


def dump_broker(broker: BrokerState, serializer: JsonSerializer) -> dict[str, Any]:
    """Return the work that a run has in progress: its queues, steps under way, collected events, waiters."""
    try:
        dumped = broker.to_serialized(serializer).model_dump(mode="python", exclude_defaults=True, exclude=_NOT_KEPT)
    except (TypeError, ValueError) as error:  # of json and of pydantic
        raise UsageError(f"an event can't be saved: {error}") from error
    dumped["workers"] = {name: worker for name, worker in dumped.get("workers", {}).items() if worker}
    for attempt in (item for worker in dumped["workers"].values() for item in worker.get("in_progress", ())):
        if "attempts" not in attempt:  # the first one: the next life makes it, and its time begins then
            del attempt["first_attempt_at"]
    return {name: plain_values(value) for name, value in dumped.items()}


def load_broker(broker: Mapping[str, Any], workflow: Workflow) -> dict[str, Any]:
    """Return dumped work as a serialized context."""
    known = {str(step) for step in BrokerState.from_workflow(workflow).workers}
    lost = sorted(set(broker.get("workers", {})) - known)
    if lost:
        raise UsageError(
            f"the run has work for the step {lost[0]!r:.60}, which the workflow lacks: a step was renamed or removed "
            "since. Give the step its name again, or roll the session back"
        )
    data = {name: json_values(value) for name, value in broker.items() if name != "elapsed_alive"}
    return {**data, "version": CURRENT_SERIALIZED_VERSION}


def plain_values(value: Any) -> Any:
    """Return data of the framework with the objects that it has as JSON texts as plain data."""
    if isinstance(value, dict):
        return {name: plain_values(item) for name, item in value.items()}
    if isinstance(value, list):
        return [plain_values(item) for item in value]
    if isinstance(value, str) and value.startswith('{"__is_'):
        return {_JSON: json.loads(value)}
    return value


def json_values(value: Any) -> Any:
    if isinstance(value, dict):
        if _JSON in value:
            return json.dumps(value[_JSON])
        return {name: json_values(item) for name, item in value.items()}
    return [json_values(item) for item in value] if isinstance(value, list) else value


# -- the end of a run --------------------------------------------------------------------------------------------------


def dump_fields(event: Event) -> dict[str, Any]:
    """Return the fields of an event, declared and undeclared ones."""
    fields = dict(event.model_dump(mode="json"))
    undeclared = fields.pop("_data", {})
    return {**fields, **undeclared}


def dump_stop(stop: StopEvent, serializer: JsonSerializer, texts: RecordedTexts) -> dict[str, Any]:
    """Return what ended a run. The result itself is stored with its own types.

    Of a text that a model has answered, which most agents return, the place is stored.
    """
    if type(stop) is StopEvent:
        answer = texts.find(stop.result)
        result = {"result": serializer.serialize_value(stop.result)} if answer is None else {"answer": answer}
        return {**result, "fields": stop.to_dict()}
    return {"event": serializer.serialize_value(stop)}


def load_stop(recorded: Mapping[str, Any], serializer: JsonSerializer, texts: RecordedTexts) -> StopEvent:
    if "event" in recorded:
        stop = serializer.deserialize_value(recorded["event"])
        assert isinstance(stop, StopEvent)
        return stop
    if "answer" in recorded:
        return StopEvent(result=texts.get(recorded["answer"]), **recorded["fields"])
    return StopEvent(result=serializer.deserialize_value(recorded["result"]), **recorded["fields"])
