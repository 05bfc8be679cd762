"""Copies of tools whose calls are recorded.

Tools that the provider carries out are part of the model's answer, and need no copy. A computer's
actions are not recorded.
"""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import inspect
import json
from collections.abc import Callable, Mapping
from types import CellType, FunctionType
from typing import TYPE_CHECKING, Any

from agents import ApplyPatchTool, CustomTool, FunctionTool, LocalShellTool, RunConfig, ShellResult, ShellTool
from agents.editor import ApplyPatchOperation, ApplyPatchResult
from agents.tool import (
    ToolOutputFileContent,
    ToolOutputImage,
    ToolOutputText,
    invoke_function_tool,
    maybe_invoke_function_tool_failure_error_function,
    set_function_tool_failure_error_function,
    with_function_tool_failure_error_handler,
)

from holdfast.adapters.openai_agents.sandbox import save_files
from holdfast.model.effect import EffectKind

if TYPE_CHECKING:
    from holdfast.adapters.openai_agents.journal import AgentJournal

_PLAIN = (type(None), bool, int, float, str, bytes)


def copy_tool(journal: AgentJournal, tool: Any) -> Any:
    """Return a copy of a tool whose calls are recorded; the tool itself, if there is nothing to record."""
    if isinstance(tool, FunctionTool):
        return _copy_agent_tool(journal, tool) or _copy_function_tool(journal, tool)
    if isinstance(tool, CustomTool):
        return _copy_custom_tool(journal, tool)
    if isinstance(tool, ShellTool) and tool.executor is not None:
        return _copy_shell_tool(journal, tool)
    if isinstance(tool, LocalShellTool):
        return _copy_shell_tool(journal, tool)
    if isinstance(tool, ApplyPatchTool):
        copied = copy.copy(tool)
        copied.editor = JournaledEditor(tool.editor, tool.name, journal)
        return copied
    return tool


def dump_output(output: Any) -> Any:
    """Return a tool's output as plain data that the SDK shows to the model in the same way.

    Of other objects the model sees the text, so that is what is recorded.
    """
    if isinstance(output, ToolOutputText | ToolOutputImage | ToolOutputFileContent):
        return output.model_dump(mode="json", exclude_none=True)
    if isinstance(output, list | tuple) and output and all(hasattr(item, "model_dump") for item in output):
        return [dump_output(item) for item in output]
    return output if _is_plain(output) else str(output)


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(type(name) is str and _is_plain(item) for name, item in value.items())
    if type(value) in (list, tuple):
        return all(map(_is_plain, value))
    return type(value) in _PLAIN


# -- functions ---------------------------------------------------------------------------------------------------------


def _copy_function_tool(journal: AgentJournal, tool: FunctionTool) -> FunctionTool:
    function = getattr(tool, "__wrapped__", None)
    called = copy.copy(tool)
    effect = journal.turn.find_effect(tool.name, function)
    if effect is not None and effect.kind != EffectKind.READ:
        # The ledger must see the failure, before the SDK makes a text of it.
        set_function_tool_failure_error_function(called, None)
        called.timeout_behavior = "raise_exception"

    async def invoke(context: Any, text: str) -> Any:
        changed = journal.changed_arguments.get(context.tool_call_id)
        given = text if changed is None else json.dumps(changed)
        arguments = object_of(given)

        async def call(**kept: Any) -> Any:
            # They differ from the model's if a person has approved others.
            sent = given if arguments is None or kept == arguments else json.dumps(kept)
            output = dump_output(await invoke_function_tool(function_tool=called, context=context, arguments=sent))
            await save_files(tool)
            return output

        async def failed(error: Exception) -> Any:
            made = await maybe_invoke_function_tool_failure_error_function(
                function_tool=copied, context=context, error=error
            )
            if made is None:
                raise error
            return made

        return await journal.turn.call_tool(
            tool.name,
            arguments or {},
            call,
            call_id=context.tool_call_id,
            function=function,
            failed=failed,
            required=_required_of(tool, function),
        )

    prepare = getattr(tool.on_invoke_tool, "prepare_arguments", None)
    if prepare is not None:  # with which the SDK decides whether a call needs approval
        invoke.__agents_prepare_arguments__ = prepare  # type: ignore[attr-defined]  # functions take any attribute
    copied = _with_invoker(tool, invoke)
    copied.timeout_seconds = None  # `called` has it: a timeout is recorded as a result
    return copied


def _required_of(tool: FunctionTool, function: Any) -> list[str]:
    """Return the arguments without a default: a strict schema requires all."""
    if not inspect.isroutine(function):
        return []
    parameters = inspect.signature(function).parameters.values()
    needed = {parameter.name for parameter in parameters if parameter.default is inspect.Parameter.empty}
    return [name for name in tool.params_json_schema.get("required", ()) if name in needed]


def _with_invoker(tool: FunctionTool, invoke: Callable[[Any, str], Any]) -> FunctionTool:
    """Return a copy of a tool that is invoked in another way, with its own way to tell failures."""
    copied = copy.copy(tool)
    copied.on_invoke_tool = with_function_tool_failure_error_handler(invoke, lambda *_: None)
    return copy.copy(copied)  # a copy binds the invoker to itself


def _copy_agent_tool(journal: AgentJournal, tool: FunctionTool) -> FunctionTool | None:
    """Return a copy of `agent.as_tool(...)` that runs the copy of the agent; None if it is another tool.

    The SDK has no way to ask such a tool for its agent and options: they are variables of the function
    that it calls. So that function is copied, with other values of two variables. If the SDK changes
    this, the tool is recorded like any other: a call that was cut off is not repeated.
    """
    values = _agent_variables(tool)
    if values is None:
        return None
    invoke = tool.on_invoke_tool._invoke_tool_impl  # type: ignore[attr-defined]  # as `_agent_variables` has found
    values["self"] = journal.copy_agent(values["self"])
    if isinstance(values["run_config"], RunConfig):
        values["run_config"] = journal.copy_run_config(values["run_config"])
    closure = tuple(CellType(values[name]) for name in invoke.__code__.co_freevars)
    return _with_invoker(
        tool, FunctionType(invoke.__code__, invoke.__globals__, invoke.__name__, invoke.__defaults__, closure)
    )


def agent_of_tool(tool: Any) -> Any:
    """Return the agent of `agent.as_tool(...)`; None of another tool."""
    values = _agent_variables(tool)
    return None if values is None else values["self"]


def _agent_variables(tool: Any) -> dict[str, Any] | None:
    """Return the variables of the function that such a tool calls; None of another tool."""
    # Private: a tool that `Agent.as_tool` made shows neither its agent nor its options otherwise.
    invoke = getattr(getattr(tool, "on_invoke_tool", None), "_invoke_tool_impl", None)
    if not getattr(tool, "_is_agent_tool", False) or not isinstance(invoke, FunctionType):
        return None
    cells = (cell.cell_contents for cell in invoke.__closure__ or ())
    values = dict(zip(invoke.__code__.co_freevars, cells, strict=True))
    return values if {"self", "run_config"} <= values.keys() else None


def object_of(text: str) -> dict[str, Any] | None:
    """Return the arguments that the model wrote; None if they are no object."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


# -- shells, editors and tools with a text ----------------------------------------------------------------------------


def _copy_custom_tool(journal: AgentJournal, tool: CustomTool) -> CustomTool:
    async def invoke(context: Any, text: str) -> Any:
        async def call(input: str) -> Any:
            output = dump_output(await _await_value(tool.on_invoke_tool(context, input)))
            await save_files(tool)
            return output

        return await journal.turn.call_tool(
            tool.name, {"input": text}, call, call_id=context.tool_call_id, function=tool.on_invoke_tool
        )

    copied = copy.copy(tool)
    copied.on_invoke_tool = invoke
    return copied


def _copy_shell_tool(journal: AgentJournal, tool: Any) -> Any:
    async def execute(request: Any) -> Any:
        action = request.data.action
        is_plain = dataclasses.is_dataclass(action) and not isinstance(action, type)
        about = dataclasses.asdict(action) if is_plain else action.model_dump(mode="json")

        async def call(**_: Any) -> Any:
            result = await _await_value(tool.executor(request))
            return dataclasses.asdict(result) if isinstance(result, ShellResult) else str(result)

        result = await journal.turn.call_tool(
            tool.name, about, call, call_id=request.data.call_id, function=tool.executor
        )
        return ShellResult(**result) if isinstance(result, dict) else result

    copied = copy.copy(tool)
    copied.executor = execute
    return copied


class JournaledEditor:
    """An editor of files whose operations are recorded."""

    def __init__(self, editor: Any, tool: str, journal: AgentJournal) -> None:
        self._editor = editor
        self._tool = tool
        self._journal = journal

    async def create_file(self, operation: ApplyPatchOperation) -> Any:
        return await self._edit(self._editor.create_file, operation)

    async def update_file(self, operation: ApplyPatchOperation) -> Any:
        return await self._edit(self._editor.update_file, operation)

    async def delete_file(self, operation: ApplyPatchOperation) -> Any:
        return await self._edit(self._editor.delete_file, operation)

    async def _edit(self, method: Callable[[ApplyPatchOperation], Any], operation: ApplyPatchOperation) -> Any:
        about = {"type": operation.type, "path": operation.path, "diff": operation.diff, "move_to": operation.move_to}

        async def call(**_: Any) -> Any:
            result = await _await_value(method(operation))
            if isinstance(result, ApplyPatchResult):
                return {"status": result.status, "output": result.output}
            return result

        result = await self._journal.turn.call_tool(self._tool, about, call)
        return ApplyPatchResult(**result) if isinstance(result, Mapping) else result


async def _await_value(value: Any) -> Any:
    return await value if inspect.isawaitable(value) or asyncio.isfuture(value) else value
