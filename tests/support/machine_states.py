"""States of agents, and edits of a state between two saves."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from machine_values import large, odd, stretches


@st.composite
def first_states(draw: st.DrawFn) -> Any:
    state: dict[Any, Any] = {"m": draw(stretches)}
    if draw(st.booleans()):
        state["values"] = {"m": draw(stretches), "n": draw(st.integers(0, 3))}
    if draw(st.booleans()):
        state["text"] = draw(large)
    if draw(st.booleans()):
        state["any"] = draw(odd)
    return state


@dataclass(frozen=True)
class Edit:
    """What an agent does to its state between two saves."""

    kind: str
    path: tuple[str, ...]
    at: int
    until: int
    new: list[Any]
    text: str | bytes

    def __call__(self, state: Any) -> None:
        """Changes the state in place."""
        if self.kind == "text":
            state["text"] = self.text
        elif self.kind == "drop":
            state.pop("any", None)
        elif self.kind == "key":  # another order of keys
            state["m"] = state.pop("m", [])
        else:
            for key in self.path[:-1]:
                state = state.setdefault(key, {})
            self._edit_list(state.setdefault(self.path[-1], []))

    def _edit_list(self, items: list[Any]) -> None:
        new = copy.deepcopy(self.new)
        if self.kind == "extend":
            items += new
        elif self.kind == "insert":
            items[self.at : self.at] = new
        elif self.kind == "delete":
            del items[self.at : self.until]
        elif self.kind == "replace":
            items[self.at : self.until] = new
        elif self.kind == "slide":
            items += new
            del items[: len(new)]
        elif self.kind == "move" and items:
            items.append(items.pop(self.at % len(items)))


def change_inside(items: list[Any], at: int) -> None:
    """One element stays the object that it was, and is changed somewhere inside; of one that can't be, nothing is."""
    found = items[at % len(items)] if items else None
    while isinstance(found, dict | list) and found:
        inner = list(found.values()) if isinstance(found, dict) else found
        deeper = next((one for one in inner if isinstance(one, dict | list | set | bytearray)), None)
        if deeper is None:
            break
        found = deeper
    if isinstance(found, dict):
        key = next(iter(found), "first")
        found[key] = found.pop(key, None) if at % 3 == 0 else f"changed {at}"
    elif isinstance(found, list | bytearray):
        found.append(at)
    elif isinstance(found, set):
        found.add(at)


edits = st.builds(
    Edit,
    kind=st.sampled_from(["extend", "extend", "insert", "delete", "replace", "slide", "text", "move", "drop", "key"]),
    path=st.sampled_from([("m",), ("m",), ("values", "m")]),
    at=st.integers(0, 100),
    until=st.integers(0, 200),
    new=stretches,
    text=large,
)
