"""The agents behind one resumable object: an agent with those it uses as tools, or a graph or swarm.

Each agent has a path: "" for the agent itself, the ids of nodes and the names of tools for the
others. The state of a session has the messages of each agent as a list of its own.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from strands import Agent
from strands.multiagent import Swarm
from strands.multiagent.base import Status
from strands.multiagent.graph import Graph, GraphEdge, GraphNode
from strands.telemetry.metrics import EventLoopMetrics

from holdfast.adapters.base.turn import INTERRUPTED
from holdfast.errors import UsageError

MESSAGES = "messages"
AGENTS = "agents"
SHARED = "shared_context"
_NO_INTERRUPTS = {"interrupts": {}, "context": {}, "activated": False}
_IDLE = {"_internal_state": {"interrupt_state": _NO_INTERRUPTS}}  # the state of a graph or swarm that is not running


class StrandsTeam:
    """All agents that a target can run, by their paths, and its graphs and swarms.

    Tools of the names `opaque` are recorded as one call, even if they run an agent.
    """

    def __init__(self, target: Agent | Graph | Swarm, opaque: Collection[str] = ()) -> None:
        self.agents: dict[str, Agent] = {}
        self.groups: dict[str, Graph | Swarm] = {}
        self.other_nodes: dict[str, GraphNode] = {}  # nodes of other classes: functions, remote agents
        self._opaque = opaque
        self._collect("", target)
        self._first = {path: _dump_agent(agent) for path, agent in self.agents.items()}
        self._first_messages = {path: copy.deepcopy(agent.messages) for path, agent in self.agents.items()}
        self._first_shared = self._dump_shared()

    def _collect(self, path: str, one: Any) -> None:
        if any(one is known for known in (*self.agents.values(), *self.groups.values())):
            return
        _refuse(one)
        below = f"{path}/" if path else ""
        if isinstance(one, Agent):
            self.agents[path] = one
            for tool in one.tool_registry.registry.values():
                if is_agent_tool(tool) and tool.tool_name not in self._opaque:
                    self._collect(f"{below}{tool.tool_name}", tool.agent)
            return
        self.groups[path] = one
        if isinstance(one, Graph):
            one.edges = SortedEdges(one.edges)
        for name, node in one.nodes.items():
            if isinstance(node.executor, Agent | Graph | Swarm):
                self._collect(f"{below}{name}", node.executor)
            else:
                self.other_nodes[f"{below}{name}"] = node

    # -- state ---------------------------------------------------------------------------------------------------------

    def dump(self) -> dict[str, Any]:
        """Return what the agents have to remember between turns.

        The lists are new, their messages are not copied. Every checkpoint has the rest, so fields
        that say nothing are left out.
        """
        kept = {}
        for path, agent in self.agents.items():
            first = self._first[path]
            changed = {name: one for name, one in _dump_agent(agent).items() if name == "state" or one != first[name]}
            kept[path] = {name: one for name, one in changed.items() if one}
        shared = self._dump_shared()
        state = {AGENTS: kept, **({SHARED: shared} if shared else {})}
        return state | {key_of(path): list(agent.messages) for path, agent in self.agents.items()}

    def _dump_shared(self) -> dict[str, Any]:
        """Return what the agents of swarms have told each other."""
        swarms = {path: one for path, one in self.groups.items() if isinstance(one, Swarm)}
        return {path: copy.deepcopy(one.shared_context.context) for path, one in swarms.items()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Put all agents where a session stands. Those that it does not know begin as they were given."""
        for path, agent in self.agents.items():
            messages, kept = state.get(key_of(path)), self._first[path]
            if messages is None:
                messages = copy.deepcopy(self._first_messages[path])
            else:
                kept = {**kept, "state": {}, **((state.get(AGENTS) or {}).get(path) or {})}
            load_agent(agent, messages, kept)
        for path, group in self.groups.items():
            status = group.state.completion_status if isinstance(group, Swarm) else group.state.status
            if status is Status.INTERRUPTED:  # an earlier turn of this process waits for a person
                group.deserialize_state(copy.deepcopy(_IDLE))
            if isinstance(group, Swarm):
                known = state.get(SHARED) or self._first_shared
                group.shared_context.context = copy.deepcopy(known.get(path) or {})

    def is_waiting(self) -> Iterator[bool]:
        """Yield for each agent whether it waits for an answer of a person."""
        for agent in self.agents.values():
            yield agent.take_snapshot(include=["interrupt_state"]).data["interrupt_state"]["activated"]

    def history(self) -> Iterator[tuple[str, Any]]:
        """Yield the place and the message of all messages that the agents have now."""
        for path, agent in self.agents.items():
            for number, message in enumerate(agent.messages):
                yield f"{path}#{number}", message


class SortedEdges(set[GraphEdge]):
    """The edges of a graph, in the same order in every process.

    Strands builds the input of a node in the order of its edges. The order of a set of texts differs
    from process to process: the node would ask its model something else after a restart.
    """

    def __iter__(self) -> Iterator[Any]:
        return iter(sorted(super().__iter__(), key=lambda edge: (edge.from_node.node_id, edge.to_node.node_id)))


def key_of(path: str) -> str:
    """Return the key of the state that has an agent's messages."""
    return f"{MESSAGES}:{path}" if path else MESSAGES


def is_agent_tool(tool: Any) -> bool:
    """Return whether a tool is an agent (`agent.as_tool()`)."""
    return isinstance(getattr(tool, "agent", None), Agent)


def _dump_agent(agent: Agent) -> dict[str, Any]:
    """Return what an agent remembers beside its messages."""
    kept: dict[str, Any] = agent.take_snapshot(preset="session", exclude=["messages", "interrupt_state"]).data
    return kept


def load_agent(agent: Agent, messages: list[Any], kept: Mapping[str, Any]) -> None:
    """Give an agent a conversation, and answer the calls at its end that have no result.

    Strands would carry those out, whether they were carried out before or not.
    """
    snapshot = agent.take_snapshot(include=["conversation_manager_state"])
    own = snapshot.data["conversation_manager_state"]
    data = {**kept, "interrupt_state": copy.deepcopy(_NO_INTERRUPTS)}
    if (data.get("conversation_manager_state") or {}).get("__name__") != own.get("__name__"):
        data.pop("conversation_manager_state", None)  # the program has another manager now
    snapshot.data = data
    agent.load_snapshot(snapshot)
    agent.messages = [*messages, *_missing_results(messages)]
    agent.event_loop_metrics = EventLoopMetrics()  # those of a turn are the same in every life, those of a process not


def _missing_results(messages: list[Any]) -> Iterator[dict[str, Any]]:
    content = messages[-1].get("content") if messages else None
    calls = [block["toolUse"]["toolUseId"] for block in content or () if "toolUse" in block]
    results = [
        {"toolResult": {"toolUseId": id_, "status": "error", "content": [{"text": INTERRUPTED}]}} for id_ in calls
    ]
    if results:
        yield {"role": "user", "content": results}


def _refuse(one: Any) -> None:
    """Raise if an agent or a group keeps its conversation elsewhere."""
    if isinstance(one, Agent):
        # Private: an agent does not show its session manager otherwise.
        manager = one._session_manager
        if one.model.stateful:
            raise UsageError(
                f"the model of agent {one.name!r:.60} keeps the conversation at its provider (stateful): a resumable "
                "agent needs a model that is sent the messages"
            )
    else:
        manager = one.session_manager
    if manager is not None:
        name = one.name if isinstance(one, Agent) else one.id
        raise UsageError(
            f"{name!r:.60} has a session manager, and the store has the conversation of a resumable agent. Leave "
            "session_manager= out"
        )
