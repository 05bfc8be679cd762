"""The result of a turn as plain data beside the conversation, and back.

The conversation has the messages; those of a turn carry the id of its run. Recorded is what no
message says: the output, the usage and the metadata.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Union, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic_ai import NativeOutput, PromptedOutput, TextOutput, ToolOutput
from pydantic_ai.agent import AgentRunResult
from pydantic_ai.messages import ModelMessage, tool_return_ta
from pydantic_ai.usage import RunUsage


def dump_result(result: AgentRunResult[Any]) -> dict[str, Any]:
    """Return a result as plain data, without its messages."""
    fields = {
        "run_id": result.run_id,
        "conversation_id": result.conversation_id,
        "output": tool_return_ta.dump_python(result.output, mode="json", fallback=str),
        "output_tool_name": result._output_tool_name,  # private: the result has no public name for it
        "usage": _usages().dump_python(result.usage, mode="json", exclude_defaults=True),
        "metadata": tool_return_ta.dump_python(result.metadata, mode="json", fallback=str),
    }
    return {name: value for name, value in fields.items() if value is not None or name == "output"}


def load_result(recorded: Mapping[str, Any], messages: Sequence[ModelMessage], output_type: Any) -> AgentRunResult[Any]:
    """Return the result of a finished turn, of what was recorded and the conversation."""
    own = [number for number, item in enumerate(messages) if item.run_id == recorded["run_id"]]
    first, end = (own[0], own[-1] + 1) if own else (len(messages), len(messages))
    fields = {
        **recorded,
        "output": load_output(recorded["output"], output_type),
        "messages": list(messages[:end]),
        "new_message_index": first,
    }
    loaded: AgentRunResult[Any] = _results().validate_python(fields)
    return loaded


def load_output(recorded: Any, output_type: Any) -> Any:
    """Return a recorded output in the agent's type; as plain data if it has none that says how."""
    kinds = tuple(_list_types(output_type))
    if not kinds:
        return recorded
    try:
        wanted: Any = Union[kinds]  # noqa: UP007  # of a tuple
        return TypeAdapter(wanted).validate_python(recorded)
    except (ValidationError, TypeError):
        return recorded


def _list_types(output_type: Any) -> Iterator[Any]:
    """Yield the types that an output may have."""
    if isinstance(output_type, list | tuple):
        for item in output_type:
            yield from _list_types(item)
    elif isinstance(output_type, ToolOutput):
        yield from _list_types(output_type.output)
    elif isinstance(output_type, NativeOutput | PromptedOutput):
        yield from _list_types(output_type.outputs)
    elif isinstance(output_type, TextOutput):
        yield from _list_types(output_type.output_function)
    elif inspect.isroutine(output_type):
        yield get_type_hints(output_type).get("return", Any)
    else:
        yield output_type


@cache
def _results() -> TypeAdapter[Any]:
    return TypeAdapter(AgentRunResult[Any])


@cache
def _usages() -> TypeAdapter[Any]:
    return TypeAdapter(RunUsage)
