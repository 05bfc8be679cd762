"""A model's answer as plain data, and back: a text, tool calls, or a value of a model class."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from crewai.utilities.agent_utils import extract_tool_call_info, is_tool_call_list
from pydantic import BaseModel

_PLAIN = (type(None), bool, int, float, str, bytes)


def dump_answer(answer: Any) -> dict[str, Any]:
    """Return an answer of `BaseLLM.call` as plain data. Tool calls of all providers get one form."""
    if isinstance(answer, BaseModel):
        return {"data": answer.model_dump(mode="json")}
    if isinstance(answer, list) and answer and is_tool_call_list(answer):
        found = [extract_tool_call_info(call) for call in answer]
        return {"calls": [_dump_call(*info) for info in found if info is not None]}
    return {"text": answer if isinstance(answer, str) else str(answer)}


def load_answer(recorded: Mapping[str, Any], response_model: type[BaseModel] | None) -> Any:
    if "calls" in recorded:
        return [_Call.model_validate(call, strict=True).model_dump() for call in recorded["calls"]]
    if "data" in recorded:
        data = recorded["data"]
        return json.dumps(data) if response_model is None else response_model.model_validate(data)
    if not isinstance(recorded["text"], str):
        raise TypeError(f"the text of an answer is a {type(recorded['text']).__name__}")
    return recorded["text"]


class _Function(BaseModel):
    name: str
    arguments: str


class _Call(BaseModel):
    id: str
    type: str
    function: _Function


def _dump_call(id_: str, name: str, arguments: Any) -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": str(id_), "type": "function", "function": {"name": name, "arguments": text}}


def is_plain(value: Any) -> bool:
    """Return whether a value is stored and restored as it is, without a class of its own."""
    if type(value) is dict:
        return all(type(name) is str and is_plain(item) for name, item in value.items())
    if type(value) in (list, tuple):
        return all(map(is_plain, value))
    return type(value) in _PLAIN
