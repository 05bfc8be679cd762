"""A workbench whose tool calls are recorded, and an executor whose code is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from autogen_agentchat.tools._task_runner_tool import TaskRunnerTool
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeExecutor, CodeResult
from autogen_core.tools import StaticStreamWorkbench, StaticWorkbench, TextResultContent, ToolResult, Workbench

from holdfast.adapters.base.turn import TurnEndedError
from holdfast.adapters.base.unreadable import check_texts
from holdfast.model.effect import EffectKind

if TYPE_CHECKING:
    from holdfast.adapters.autogen.journal import TeamJournal

EXECUTE_CODE = "execute_code"
"""The name under which the code of an agent is recorded, and declared in `tools=`."""


class JournaledWorkbench(StaticStreamWorkbench):
    """A workbench that gives the recorded result of a call, or makes it in the user's own workbench.

    It never raises when the turn ends or is cancelled: AutoGen would wait for the result for ever.
    The next model call raises instead.
    """

    def __init__(self, workbench: Workbench, journal: TeamJournal) -> None:
        self._workbench = workbench
        self._journal = journal

    async def list_tools(self) -> Any:
        return await self._workbench.list_tools()

    async def call_tool_stream(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> AsyncGenerator[Any, None]:
        is_agent = isinstance(self._find(name), TaskRunnerTool) and self._get_declared(name) is None
        given = (name, arguments, cancellation_token, call_id)
        if (self._journal.turn is None or is_agent) and isinstance(self._workbench, StaticStreamWorkbench):
            async for event in self._workbench.call_tool_stream(*given):  # whose inner calls are recorded
                yield event
        else:
            yield await self.call_tool(*given)

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> ToolResult:
        turn, tool, declared = self._journal.turn, self._find(name), self._get_declared(name)
        if turn is None or (isinstance(tool, TaskRunnerTool) and declared is None):
            return await self._workbench.call_tool(name, arguments, cancellation_token, call_id)
        is_effect = declared is not None and declared.kind != EffectKind.READ

        async def call(**kept: Any) -> Any:
            if is_effect and tool is not None:  # the ledger must see the failure, before AutoGen makes a text of it
                token = cancellation_token or CancellationToken()
                running = asyncio.ensure_future(tool.run_json(kept, token, call_id=call_id))
                token.link_future(running)  # as a workbench does it
                return str(tool.return_value_as_string(await running))
            result = await self._workbench.call_tool(name, kept, cancellation_token, call_id)
            if is_effect and result.is_error:
                raise RuntimeError(result.to_text())
            return _dump_result(result)

        function = getattr(tool, "_func", None)
        try:
            return await turn.call_tool(
                name,
                arguments or {},
                call,
                call_id=call_id or None,
                function=function,
                answer=_dump_error,
                failed=lambda error: _dump_error(str(error)),
                required=() if tool is None else tool.schema.get("parameters", {}).get("required", ()),
                load=partial(_load_result, name),
            )
        except TurnEndedError as error:
            recorded = _dump_error(str(error))
        except asyncio.CancelledError:
            if cancellation_token is None or not cancellation_token.is_cancelled():
                raise
            recorded = _dump_error("The turn was cancelled.")
        return _load_result(name, recorded)

    def _find(self, name: str) -> Any:
        workbench = self._workbench
        if not isinstance(workbench, StaticWorkbench):
            return None
        # Private: a workbench gives descriptions of its tools, not the tools.
        original = workbench._override_name_to_original.get(name, name)
        return next((tool for tool in workbench._tools if tool.name == original), None)

    def _get_declared(self, name: str) -> Any:
        turn = self._journal.turn
        return None if turn is None else turn.find_effect(name, getattr(self._find(name), "_func", None))

    async def start(self) -> None:
        await self._workbench.start()

    async def stop(self) -> None:
        await self._workbench.stop()

    async def reset(self) -> None:
        await self._workbench.reset()

    async def save_state(self) -> Mapping[str, Any]:
        state: Mapping[str, Any] = await self._workbench.save_state()
        return state

    async def load_state(self, state: Mapping[str, Any]) -> None:
        await self._workbench.load_state(state)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._workbench, name)


class JournaledCodeExecutor(CodeExecutor):
    """An executor of code whose results are recorded. `tools={"execute_code": ...}` declares it."""

    def __init__(self, executor: CodeExecutor, journal: TeamJournal) -> None:
        self._executor = executor
        self._journal = journal

    async def execute_code_blocks(self, code_blocks: Any, cancellation_token: CancellationToken) -> CodeResult:
        turn = self._journal.turn
        if turn is None:
            return await self._executor.execute_code_blocks(code_blocks, cancellation_token)

        async def call(**_: Any) -> Any:
            result = await self._executor.execute_code_blocks(code_blocks, cancellation_token)
            return {"exit_code": result.exit_code, "output": result.output}

        arguments = {
            "blocks": [{"language": code_block.language, "code": code_block.code} for code_block in code_blocks]
        }
        try:
            return await turn.call_tool(
                EXECUTE_CODE,
                arguments,
                call,
                answer=lambda text: {"exit_code": 1, "output": text},
                load=lambda recorded: CodeResult(**recorded),
            )
        except TurnEndedError as error:
            return CodeResult(exit_code=1, output=str(error))

    async def start(self) -> None:
        await self._executor.start()

    async def stop(self) -> None:
        await self._executor.stop()

    async def restart(self) -> None:
        await self._executor.restart()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)


def _dump_result(result: ToolResult) -> Any:
    """Return a result as plain data: the text alone, if there is nothing else."""
    if not result.is_error and len(result.result) == 1 and isinstance(result.result[0], TextResultContent):
        return result.result[0].content
    return result.model_dump(mode="json", exclude={"name"})


def _dump_error(text: str) -> Any:
    return {"type": "ToolResult", "result": [{"type": "TextResultContent", "content": text}], "is_error": True}


def _load_result(name: str, recorded: Any) -> ToolResult:
    check_texts(recorded)
    if isinstance(recorded, Mapping):
        return ToolResult.model_validate({**recorded, "name": name})
    return ToolResult(name=name, result=[TextResultContent(content=str(recorded))])
