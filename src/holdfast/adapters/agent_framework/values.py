"""Values of a workflow as plain data, and back, without pickle.

Objects of agent-framework are stored by their names in that package. Objects of the user's own
classes stay as they are: the store knows those that were registered by `holdfast.register`, and
refuses others with an error that says where they are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import agent_framework
from agent_framework import WorkflowCheckpoint, WorkflowEvent, WorkflowMessage

from holdfast.adapters.base.credentials import strip_state
from holdfast.errors import UsageError

_TYPE = "$type"
_DICT = "dict"
_REQUEST = "request_info"
_BUILTIN = {class_.__name__: class_ for class_ in (bool, int, float, str, bytes, list, dict, tuple, set, type(None))}


def dump_value(value: Any) -> Any:
    """Return a value as data that the store knows, without pickle."""
    if isinstance(value, WorkflowMessage):
        fields = {**value.to_dict(), "data": dump_value(value.data)}
        fields["original_request_info_event"] = dump_value(value.original_request_info_event)
        return {_TYPE: "WorkflowMessage", "value": {name: item for name, item in fields.items() if item is not None}}
    if isinstance(value, WorkflowEvent) and value.type == _REQUEST:
        fields = {
            name: dump_value(item) for name, item in value.to_dict().items() if name not in ("type", "request_type")
        }
        return {_TYPE: _REQUEST, "value": {**fields, "response_type": _name_of(value.response_type)}}
    if type(value) is dict:
        plain = {name: dump_value(item) for name, item in value.items()}
        return {_TYPE: _DICT, "value": plain} if _TYPE in plain else plain
    if type(value) in (list, tuple):
        return type(value)(map(dump_value, value))
    name = _name_of(type(value))
    if name is None or name in _BUILTIN:
        return value
    if hasattr(value, "to_dict") and hasattr(type(value), "from_dict"):
        return {_TYPE: name, "value": value.to_dict()}
    if dataclasses.is_dataclass(value):
        fields = {field.name: dump_value(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {_TYPE: name, "fields": fields}
    return value


def load_value(value: Any) -> Any:
    if type(value) in (list, tuple):
        return type(value)(map(load_value, value))
    if type(value) is not dict:
        return value
    name = value.get(_TYPE)
    if name is None:
        return {item: load_value(member) for item, member in value.items()}
    if name == _DICT:
        return {item: load_value(member) for item, member in value["value"].items()}
    if name == _REQUEST:
        return _load_request(value["value"])
    found = _class_of(name)
    if found is WorkflowMessage:
        fields = {item: load_value(member) for item, member in value["value"].items()}
        return WorkflowMessage.from_dict(fields)
    if found is None:
        raise UsageError(f"a checkpoint has an object of {name!r:.60}, which the installed agent-framework lacks")
    if "fields" in value:
        return found(**{item: load_value(member) for item, member in value["fields"].items()})
    return found.from_dict(value["value"])


def dump_checkpoint(checkpoint: WorkflowCheckpoint) -> dict[str, Any]:
    fields = checkpoint.to_dict()
    state = strip_state(fields.get("state") or {}, "state of the workflow")
    return {name: dump_value(value) for name, value in {**fields, "state": state}.items()}


def load_checkpoint(recorded: Mapping[str, Any]) -> WorkflowCheckpoint:
    return WorkflowCheckpoint.from_dict({name: load_value(value) for name, value in recorded.items()})


def _load_request(fields: Mapping[str, Any]) -> WorkflowEvent[Any]:
    kind = fields.get("response_type")
    return WorkflowEvent.request_info(
        request_id=fields["request_id"],
        source_executor_id=fields["source_executor_id"],
        request_data=load_value(fields["data"]),
        response_type=_class_of(kind) or object,  # a class of the user's own: any answer will do
    )


def _name_of(kind: Any) -> str | None:
    """Return the name of a class that stands for it in data: a built-in one, or one of agent-framework's."""
    name = getattr(kind, "__name__", None)
    return name if isinstance(name, str) and _class_of(name) is kind else None


def _class_of(name: Any) -> Any:
    if not isinstance(name, str):
        return None
    found = _BUILTIN.get(name) or getattr(agent_framework, name, None)
    return found if isinstance(found, type) else None
