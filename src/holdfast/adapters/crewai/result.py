"""The result of a turn as plain data beside the conversation, and back.

The conversation has the messages themselves. Recorded is how many of them belong to which task, and
what they don't say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from crewai.crews.crew_output import CrewOutput
from crewai.flow.human_feedback import HumanFeedbackResult
from crewai.lite_agent_output import LiteAgentOutput
from crewai.tasks.task_output import TaskOutput
from crewai.types.usage_metrics import UsageMetrics
from crewai.utilities.types import LLMMessage
from pydantic import BaseModel, TypeAdapter, ValidationError

from holdfast.adapters.crewai.answer import is_plain
from holdfast.adapters.crewai.transcript import AUTHOR
from holdfast.errors import CorruptError

_OF_A_MESSAGE = ("role", "content", "tool_calls", "tool_call_id", "name")


def dump_messages(messages: Sequence[Mapping[str, Any]], agent: str) -> list[dict[str, Any]]:
    """Return messages as plain data: without files and objects of a provider's package."""
    return [_dump_message(message) | {AUTHOR: agent} for message in messages]


def dump_conversation(messages: Sequence[Mapping[str, Any]], agent: str, answer: str) -> list[dict[str, Any]]:
    """Return messages with the final answer, which CrewAI leaves out if the agent has no tools."""
    return dump_messages([*messages, *_missing_answer(messages, answer)], agent)


def _missing_answer(messages: Sequence[Mapping[str, Any]], answer: str) -> list[dict[str, str]]:
    is_answered = bool(messages) and messages[-1].get("role") == "assistant"
    return [] if is_answered or not answer else [{"role": "assistant", "content": answer}]


def load_messages(stored: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return messages as CrewAI declares them: it fails at others while it emits its events."""
    loaded = [dict(message) for message in stored]
    for message in loaded:
        message.pop(AUTHOR, None)
    try:
        _messages().validate_python(loaded, strict=True)
    except ValidationError as error:
        raise CorruptError(f"the store has messages that are none of CrewAI: {error.errors()[0]['loc']}") from error
    return loaded


@cache
def _messages() -> TypeAdapter[list[LLMMessage]]:
    return TypeAdapter(list[LLMMessage])


def _dump_message(message: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: message[name] for name in _OF_A_MESSAGE if message.get(name) is not None or name == "content"}
    return {name: value if is_plain(value) else str(value) for name, value in kept.items() if name in message}


# -- crews -------------------------------------------------------------------------------------------------------------


def dump_crew_output(output: CrewOutput, before: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the output as plain data, and the messages that it adds to the `before` of the conversation."""
    added = [item for task in output.tasks_output for item in dump_conversation(task.messages, task.agent, task.raw)]
    last = output.tasks_output[-1].raw if output.tasks_output else None
    recorded = {
        **output.model_dump(
            mode="json", exclude={"tasks_output", "pydantic", *(["raw"] if output.raw == last else [])}
        ),
        "tasks_output": [dump_task_output(task) for task in output.tasks_output],
        "before": before,
    }
    if output.pydantic is not None:
        recorded["pydantic"] = output.pydantic.model_dump(mode="json")
    return recorded, added


def load_crew_output(recorded: Mapping[str, Any], messages: Sequence[Any], tasks: Sequence[Any]) -> CrewOutput:
    """Return the output. `tasks` are the crew's: they know the classes of structured outputs."""
    position, loaded = recorded["before"], []
    for about, task in zip(recorded["tasks_output"], [*tasks, *([None] * len(recorded["tasks_output"]))], strict=False):
        own = load_messages(messages[position : position + about["stored"]])
        loaded.append(load_task_output(about, own, task))
        position += about["stored"]
    plain = {name: value for name, value in recorded.items() if name not in ("tasks_output", "pydantic", "before")}
    plain.setdefault("raw", loaded[-1].raw if loaded else "")
    output = CrewOutput(**{**plain, "token_usage": UsageMetrics(**plain["token_usage"])}, tasks_output=loaded)
    if recorded.get("pydantic") is not None and loaded:
        output.pydantic = loaded[-1].pydantic
    return output


def dump_task_output(task: TaskOutput) -> dict[str, Any]:
    messages = [*task.messages, *_missing_answer(task.messages, task.raw)]
    left_out = {"messages", "pydantic", "summary", *(["raw"] if _says(messages, task.raw) else [])}
    plain = task.model_dump(mode="json", exclude=left_out, exclude_none=True)
    if task.pydantic is not None:
        plain["pydantic"] = task.pydantic.model_dump(mode="json")
    return {**plain, "messages": len(task.messages), "stored": len(messages)}


def _says(messages: Sequence[Mapping[str, Any]], text: str) -> bool:
    """Return whether a text is that of the last message, and need not be stored a second time."""
    return bool(messages) and messages[-1].get("content") == text


def load_task_output(about: Mapping[str, Any], messages: list[dict[str, Any]], task: Any) -> TaskOutput:
    kind = getattr(task, "output_pydantic", None) or getattr(task, "response_model", None)
    plain = {name: value for name, value in about.items() if name not in ("messages", "stored", "pydantic")}
    output = TaskOutput(**{"raw": messages[-1].get("content") if messages else "", **plain})
    output.pydantic = _load_model(about.get("pydantic"), kind)
    output.messages = messages[: about["messages"]]
    return output


# -- agents ------------------------------------------------------------------------------------------------------------


def dump_agent_output(output: LiteAgentOutput, added: Sequence[Mapping[str, Any]], before: int) -> dict[str, Any]:
    """Return the output as plain data; it `added` these messages to the `before` of the conversation."""
    left_out = {"messages", "pydantic", *(["raw"] if _says(added, output.raw) else [])}
    recorded: dict[str, Any] = output.model_dump(
        mode="json", exclude=left_out, exclude_none=True, exclude_defaults=True
    )
    if output.pydantic is not None:
        recorded["pydantic"] = output.pydantic.model_dump(mode="json")
    return {**recorded, "before": before, "added": len(added)}


def load_agent_output(recorded: Mapping[str, Any], messages: Sequence[Any], kind: Any) -> LiteAgentOutput:
    plain = {name: value for name, value in recorded.items() if name not in ("pydantic", "before", "added")}
    first = recorded["before"]
    own = load_messages(messages[first : first + recorded["added"]])
    output = LiteAgentOutput(**{"raw": own[-1].get("content") if own else "", **plain}, messages=own)
    output.pydantic = _load_model(recorded.get("pydantic"), kind)
    return output


def _load_model(data: Any, kind: Any) -> BaseModel | None:
    """Return a structured output as an instance of its class, which the caller's program has."""
    return None if data is None or kind is None else kind.model_validate(data)


# -- flows -------------------------------------------------------------------------------------------------------------

_OUTPUTS = {"crew": CrewOutput, "task": TaskOutput, "agent": LiteAgentOutput}


def dump_value(value: Any) -> dict[str, Any]:
    """Return what a method of a flow returned, with the name of its kind if that is a class of CrewAI."""
    for kind, output in _OUTPUTS.items():
        if isinstance(value, output) and _has_no_own_class(value):
            return {kind: value.model_dump(mode="json")}
    if isinstance(value, HumanFeedbackResult):
        return {"feedback": {**vars(value), "output": dump_value(value.output)}}
    return {"value": value}


def load_value(recorded: Mapping[str, Any]) -> Any:
    [(kind, value)] = recorded.items()
    if kind == "feedback":
        return HumanFeedbackResult(**{**value, "output": load_value(value["output"])})
    return value if kind == "value" else _OUTPUTS[kind].model_validate(value)


def _has_no_own_class(output: Any) -> bool:
    """Return whether an output has no structured value, whose class only the caller's program has."""
    return output.pydantic is None and all(item.pydantic is None for item in getattr(output, "tasks_output", ()))
