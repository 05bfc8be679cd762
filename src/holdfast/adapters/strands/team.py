"""The agents behind one resumable object: an agent with those it uses as tools, or a graph or swarm.

Each agent has a path: "" for the agent itself, the ids of nodes and the names of tools for the
others. The state of a session has the messages of each agent as a list of its own.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Any

from strands import Agent
from strands.multiagent import Swarm
from strands.multiagent.base import Status
from strands.multiagent.graph import Graph, GraphEdge, GraphNode
from strands.telemetry.metrics import EventLoopMetrics

from holdfast.adapters.base.known_tools import KnownTools
from holdfast.adapters.base.loaded_list import LoadedList, fingerprint
from holdfast.adapters.base.session import TurnEnd
from holdfast.adapters.base.shared_target import FirstStates
from holdfast.adapters.base.turn import INTERRUPTED, FrameworkTurn
from holdfast.adapters.base.unreadable import refuse_unreadable
from holdfast.errors import CorruptError, UsageError

MESSAGES = "messages"
AGENTS = "agents"
SHARED = "shared_context"
_LOADER = "load_tool"  # a tool of strands-agents-tools that brings further ones
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
        first = {path: _first_agents.take(agent, partial(_dump_first, agent)) for path, agent in self.agents.items()}
        self._first = {path: kept for path, (kept, _) in first.items()}
        self._first_messages = {path: messages for path, (_, messages) in first.items()}
        self._first_shared = {
            path: _first_shared.take(swarm, partial(_dump_shared, swarm)) for path, swarm in self._swarms()
        }
        self._before: dict[str, list[bytes | None]] = {}  # fingerprints of the messages that a turn began with
        self._loaded = {path: LoadedList(check_messages) for path in self.agents}

    def _collect(self, path: str, item: Any) -> None:
        if any(item is known for known in (*self.agents.values(), *self.groups.values())):
            return
        _refuse(item)
        below = f"{path}/" if path else ""
        if isinstance(item, Agent):
            self.agents[path] = item
            for tool in item.tool_registry.registry.values():
                if is_agent_tool(tool) and tool.tool_name not in self._opaque:
                    self._collect(f"{below}{tool.tool_name}", tool.agent)
            return
        self.groups[path] = item
        if isinstance(item, Graph):
            item.edges = SortedEdges(item.edges)
        for name, node in item.nodes.items():
            if isinstance(node.executor, Agent | Graph | Swarm):
                self._collect(f"{below}{name}", node.executor)
            else:
                self.other_nodes[f"{below}{name}"] = node

    def find_tools(self) -> KnownTools:
        """Return the tools of all agents."""
        known = KnownTools()
        for agent in self.agents.values():
            names = agent.tool_registry.registry.keys()
            known.add(names)
            if agent.load_tools_from_directory or _LOADER in names:
                known.is_complete = False
        return known

    # -- state ---------------------------------------------------------------------------------------------------------

    def dump(self) -> dict[str, Any]:
        """Return what the agents have to remember between turns."""
        return self.dump_rest() | {key_of(path): list(agent.messages) for path, agent in self.agents.items()}

    def dump_rest(self) -> dict[str, Any]:
        """Return what the agents remember beside their messages.

        Every checkpoint has it, so fields that say nothing are left out.
        """
        kept = {}
        for path, agent in self.agents.items():
            first = self._first[path]
            changed = {
                name: value for name, value in _dump_agent(agent).items() if name == "state" or value != first[name]
            }
            kept[path] = {name: value for name, value in changed.items() if value}
        shared = {path: _dump_shared(swarm) for path, swarm in self._swarms()}
        return {AGENTS: kept, **({SHARED: shared} if shared else {})}

    def end_turn(self, result: Any, recorded: Any) -> TurnEnd:
        """Return the end of a turn. Of messages that only became more, the new ones are saved."""
        state, appended = self.dump_rest(), {}
        for path, agent in self.agents.items():
            # A conversation manager may have shortened messages in their places.
            before = self._before.get(path, [None])
            if None not in before and [*map(fingerprint, agent.messages[: len(before)])] == before:
                appended[key_of(path)] = agent.messages[len(before) :]
            else:
                state[key_of(path)] = list(agent.messages)
        return TurnEnd(result, recorded, state, appended)

    def _swarms(self) -> Iterator[tuple[str, Swarm]]:
        yield from ((path, group) for path, group in self.groups.items() if isinstance(group, Swarm))

    def load_turn(self, turn: FrameworkTurn) -> None:
        """Put all agents where a turn begins."""
        keys = {path: key_of(path) for path in self.agents}
        found = {path: turn.load_list(key, self._loaded[path]) for path, key in keys.items() if key in turn.state}
        self._before = {path: self._loaded[path].fingerprints for path in found}
        rest = {name: turn.state[name] for name in (AGENTS, SHARED) if name in turn.state}
        with refuse_unreadable("the state of the agents"):
            self.load(rest | {keys[path]: messages for path, messages in found.items()})

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


def _dump_first(agent: Agent) -> tuple[dict[str, Any], list[Any]]:
    return copy.deepcopy(_dump_agent(agent)), copy.deepcopy(agent.messages)


def _dump_shared(swarm: Swarm) -> dict[str, Any]:
    """Return what the agents of a swarm have told each other."""
    return copy.deepcopy(swarm.shared_context.context)


_first_agents: FirstStates[tuple[dict[str, Any], list[Any]]] = FirstStates()
_first_shared: FirstStates[dict[str, Any]] = FirstStates()


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


def check_messages(messages: list[Any]) -> list[Any]:
    """Return messages that Strands and its models can read; raise `CorruptError` for others."""
    for number, message in enumerate(messages):
        match message:
            case {"role": "user" | "assistant", "content": list(blocks)} if isinstance(
                message.get("tracking_id", ""), str
            ) and all(map(_is_block, blocks)):
                continue
        raise CorruptError(f"message {number} of the stored conversation is none of Strands: {message!r:.80}")
    return messages


def _is_block(block: Any) -> bool:
    match block:
        case {"text": text}:
            return isinstance(text, str)
        case {"toolUse": use}:
            return isinstance(use, dict) and all(isinstance(use.get(name), str) for name in ("toolUseId", "name"))
        case {"toolResult": {"toolUseId": str(), "content": list(content)}}:
            return all(isinstance(item, dict) for item in content)
        case {"toolResult": _}:
            return False
    return isinstance(block, dict)


def _missing_results(messages: list[Any]) -> Iterator[dict[str, Any]]:
    content = messages[-1].get("content") if messages else None
    calls = [block["toolUse"]["toolUseId"] for block in content or () if "toolUse" in block]
    results = [
        {"toolResult": {"toolUseId": id_, "status": "error", "content": [{"text": INTERRUPTED}]}} for id_ in calls
    ]
    if results:
        yield {"role": "user", "content": results}


def _refuse(item: Any) -> None:
    """Raise if an agent or a group keeps its conversation elsewhere."""
    if isinstance(item, Agent):
        # Private: an agent does not show its session manager otherwise.
        manager = item._session_manager
        if item.model.stateful:
            raise UsageError(
                f"the model of agent {item.name!r:.60} keeps the conversation at its provider (stateful): a resumable "
                "agent needs a model that is sent the messages"
            )
    else:
        manager = item.session_manager
    if manager is not None:
        name = item.name if isinstance(item, Agent) else item.id
        raise UsageError(
            f"{name!r:.60} has a session manager, and the store has the conversation of a resumable agent. Leave "
            "session_manager= out"
        )
