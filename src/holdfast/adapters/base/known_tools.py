"""The check of the names in `tools=`: a declaration that matches no tool would protect nothing."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from holdfast.errors import HoldfastWarning, UsageError
from holdfast.model.tool_effect import AGENT, Effect

LONGEST_LIST = 20  # of tools in an error
ALIKE, MOST_ALIKE = 0.66, 0.8  # how alike names are for a hint, and for a warning


@dataclass(slots=True)
class KnownTools:
    """The tools that an agent has at the start of a turn, and those of its sub-agents."""

    names: set[str] = field(default_factory=set)
    is_complete: bool = True  # False if more may appear during the turn, such as those of an MCP server

    def add(self, names: Iterable[object]) -> None:
        self.names.update(map(str, names))


def check_declared(declared: Mapping[str, Effect], known: KnownTools) -> None:
    """Raise `UsageError` for a declared tool that the agent does not have.

    If tools may appear during the turn, warn of a name that is nearly that of a tool without a
    declaration.
    """
    unknown = [name for name in declared if name not in known.names]
    # Of a tool that runs an agent by itself, only the turn finds out which tools that has.
    is_complete = known.is_complete and all(effect.kind != AGENT for effect in declared.values())
    for name in unknown:
        near = difflib.get_close_matches(
            name, known.names - declared.keys(), n=1, cutoff=ALIKE if is_complete else MOST_ALIKE
        )
        hint = f" Did you mean {near[0]!r:.60}?" if near else ""
        if is_complete:
            raise UsageError(
                f"tools= declares {name!r:.60}, and the agent has no such tool.{hint} It has "
                f"{_join_names(known.names)}. Nothing was done. Correct the name, or leave it out"
            )
        if near:
            warnings.warn(
                f"tools= declares {name!r:.60}, which is not among the tools that the agent has now.{hint} "
                f"{near[0]!r:.60} has no declaration",
                HoldfastWarning,
                stacklevel=2,
            )


def _join_names(names: Iterable[str]) -> str:
    listed = sorted(names)
    more = f" and {len(listed) - LONGEST_LIST} more" if len(listed) > LONGEST_LIST else ""
    return ", ".join(map(repr, listed[:LONGEST_LIST])) + more if listed else "none"
