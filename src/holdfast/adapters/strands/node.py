"""Nodes of a graph that are functions or remote agents: each is recorded as one call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from strands.multiagent import MultiAgentBase
from strands.multiagent.graph import GraphNode

from holdfast.adapters.base.event_stream import Emit, stream_turn
from holdfast.adapters.base.turn import FrameworkTurn
from holdfast.adapters.strands.result import dump_result, load_result


@contextmanager
def recorded_nodes(turn: FrameworkTurn, nodes: Mapping[str, GraphNode]) -> Iterator[None]:
    """Let nodes return their recorded results for the time of a turn."""
    executors = [(node, node.executor) for node in nodes.values()]
    for path, node in nodes.items():
        kind = RecordedGroupNode if isinstance(node.executor, MultiAgentBase) else RecordedAgentNode
        node.executor = kind(turn, path, node.executor)
    try:
        yield
    finally:
        for node, executor in executors:
            node.executor = executor


class RecordedAgentNode:
    """An executor of a node that returns its recorded result, or runs and records the result."""

    def __init__(self, turn: FrameworkTurn, path: str, executor: Any) -> None:
        self._turn = turn
        self._path = path
        self._executor = executor

    async def stream_async(self, task: Any = None, *args: Any, **options: Any) -> AsyncIterator[Any]:
        async def take(emit: Emit) -> None:
            async def run() -> dict[str, Any]:
                result = None
                async for event in self._executor.stream_async(task, *args, **options):
                    if "result" in event:
                        result = event["result"]
                    else:
                        emit(event)
                return dump_result(result, self._turn.is_storable)

            result = await self._turn.call_part(
                self._path, run, load=lambda recorded: load_result(recorded, self._executor)
            )
            emit({"result": result})

        async for event in stream_turn(take):
            yield event

    async def invoke_async(self, task: Any = None, *args: Any, **options: Any) -> Any:
        return [event async for event in self.stream_async(task, *args, **options)][-1]["result"]

    def __call__(self, task: Any = None, **options: Any) -> Any:
        raise NotImplementedError("a graph awaits its nodes")


class RecordedGroupNode(RecordedAgentNode, MultiAgentBase):
    """The same for an executor that is a group of agents, as functions usually are."""
