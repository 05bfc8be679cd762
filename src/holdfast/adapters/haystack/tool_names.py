"""The names that `tools=` may declare: tools of agents at any depth, and components of pipelines."""

from __future__ import annotations

from typing import Any

from haystack import Pipeline
from haystack.components.agents import Agent
from haystack.tools import ComponentTool, Tool, Toolset

from holdfast.adapters.base.known_tools import KnownTools

MOST_HELD = 100  # elements of a list that are searched for agents: longer ones are data


def find_tools(*holders: Any) -> KnownTools:
    """Return the tools and components of agents and pipelines, and of those that they hold."""
    known, waiting, seen = KnownTools(), list(holders), set[int]()
    while waiting:
        item = waiting.pop()
        if id(item) in seen or isinstance(item, type):
            continue
        seen.add(id(item))
        if isinstance(item, Agent):
            waiting.append(item.tools)
        elif isinstance(item, Pipeline):
            known.add(item.graph.nodes)
            waiting += [node["instance"] for _, node in item.graph.nodes(data=True)]
        elif isinstance(item, Toolset):
            known.is_complete = known.is_complete and type(item) is Toolset  # another class may find further ones
            waiting += item.get_selectable_tools()
        elif isinstance(item, Tool):
            known.add([item.name])
            waiting += [item._component] if isinstance(item, ComponentTool) else []  # which has no public name
        elif isinstance(item, list | tuple | dict):
            elements = item.values() if isinstance(item, dict) else item
            waiting += elements if len(item) <= MOST_HELD else ()
        elif hasattr(item, "__haystack_input__"):
            waiting += [held for name, held in vars(item).items() if not name.startswith("__")]
    return known
