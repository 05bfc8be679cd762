"""Results of agents, graphs and swarms as plain data, and back. Bytes stay bytes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from strands.agent import AgentResult
from strands.interrupt import Interrupt
from strands.multiagent import GraphResult, MultiAgentResult, Status, Swarm, SwarmResult
from strands.multiagent.base import NodeResult
from strands.multiagent.graph import Graph
from strands.telemetry.metrics import AgentInvocation, EventLoopMetrics

from holdfast.adapters.strands.journal import as_plain

_COUNTED = ("accumulated_usage", "accumulated_metrics", "execution_count", "execution_time")


def dump_result(result: Any, is_storable: Callable[[Any], bool]) -> dict[str, Any]:
    """Return a result as plain data. Of the state of a run, what the store does not keep is left out."""
    if isinstance(result, MultiAgentResult):
        return {
            "status": result.status.value,
            "results": {name: _dump_node(item, is_storable) for name, item in result.results.items()},
            "order": [node.node_id for node in _order(result)],
            "interrupts": [
                interrupt.to_dict() | {"reason": as_plain(interrupt.reason)} for interrupt in result.interrupts
            ],
            **_counts(result),
        }
    metrics, output = result.metrics, result.structured_output
    last = metrics.agent_invocations[-1].usage if metrics.agent_invocations else {}
    state = result.state if isinstance(result.state, Mapping) else {}
    return {
        "stop_reason": result.stop_reason,
        "message": copy.deepcopy(dict(result.message)),
        "usage": dict(metrics.accumulated_usage),
        "metrics": dict(metrics.accumulated_metrics),
        "cycles": metrics.cycle_count,
        "last_usage": dict(last),
        "state": {name: value for name, value in state.items() if is_storable(value)},
        "structured_output": None if output is None else output.model_dump(mode="json"),
    }


def load_result(recorded: Mapping[str, Any], target: Any, output_model: Any = None) -> Any:
    """Return the result of a recorded one. `output_model` is the class of its structured output."""
    if "results" not in recorded:
        return _load_agent_result(recorded, output_model)
    known: dict[str, Any] = target.nodes if isinstance(target, Graph | Swarm) else {}
    order = [known[name] for name in recorded["order"] if name in known]
    results = {
        name: _load_node(value, known[name].executor if name in known else None)
        for name, value in recorded["results"].items()
    }
    about = {
        "status": Status(recorded["status"]),
        "results": results,
        "interrupts": [Interrupt(**interrupt) for interrupt in recorded["interrupts"]],
        **{name: recorded[name] for name in _COUNTED},
    }
    if isinstance(target, Swarm):
        return SwarmResult(**about, node_history=order)
    if not isinstance(target, Graph):
        return MultiAgentResult(**about)
    count = [result.status for result in results.values()].count
    return GraphResult(
        **about,
        total_nodes=len(known),
        completed_nodes=count(Status.COMPLETED),
        failed_nodes=count(Status.FAILED),
        interrupted_nodes=count(Status.INTERRUPTED),
        execution_order=order,
        edges=[(edge.from_node, edge.to_node) for edge in target.edges],
        entry_points=list(target.entry_points),
    )


def has_failed(result: Any) -> bool:
    """Return whether a node has raised. A swarm returns such a result, and a further call tries again."""
    nodes = result.results.values() if isinstance(result, MultiAgentResult) else ()
    return any(isinstance(node.result, Exception) or has_failed(node.result) for node in nodes)


def _load_agent_result(recorded: Mapping[str, Any], output_model: Any) -> AgentResult:
    metrics = EventLoopMetrics(
        cycle_count=recorded["cycles"],
        agent_invocations=[AgentInvocation(usage=recorded["last_usage"])],
        accumulated_usage=recorded["usage"],
        accumulated_metrics=recorded["metrics"],
    )
    output = recorded["structured_output"]
    parsed = None if output is None or output_model is None else output_model.model_validate(output)
    return AgentResult(
        recorded["stop_reason"], recorded["message"], metrics, recorded["state"], structured_output=parsed
    )


def _dump_node(node: NodeResult, is_storable: Callable[[Any], bool]) -> dict[str, Any]:
    is_failed = isinstance(node.result, Exception)
    shown = {"failure": str(node.result)} if is_failed else dump_result(node.result, is_storable)
    return {"result": shown, "status": node.status.value, **_counts(node)}


def _load_node(recorded: Mapping[str, Any], executor: Any) -> NodeResult:
    shown = recorded["result"]
    result = Exception(shown["failure"]) if "failure" in shown else load_result(shown, executor)
    return NodeResult(result, status=Status(recorded["status"]), **{name: recorded[name] for name in _COUNTED})


def _counts(result: MultiAgentResult | NodeResult) -> dict[str, Any]:
    return {name: copy.copy(getattr(result, name)) for name in _COUNTED}


def _order(result: MultiAgentResult) -> list[Any]:
    return list(getattr(result, "execution_order", None) or getattr(result, "node_history", None) or ())
