"""A difference: the edits that lead from one checkpoint to another.

Edits are made one after the other, each on the result of those before it. Those of a list go from its end to its front,
so that their places are those of the old list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.effects import Effect
from holdfast.model.json_patch import json_patch
from holdfast.model.runs import JOURNAL_KEY
from holdfast.model.workspace import FileChange

JOURNAL = ("agent_context", JOURNAL_KEY)
PARTS = ("execution_state", "agent_context", "metadata", "tasks")
SHOWN = 120

Path = tuple[Any, ...]


class At(int):
    """A place in a list, as part of a path: told apart from a number that is the key of a dict."""

    __slots__ = ()


class Put(NamedTuple):
    """`value` at the path: the end of it is a new key of a dict, unless `replaces`; then what `was` there goes."""

    path: Path
    value: Any
    was: Any = None
    replaces: bool = False


class Drop(NamedTuple):
    """A key of a dict that is not there any more."""

    path: Path
    was: Any


class Splice(NamedTuple):
    """In the list at the path, from `at` on: these elements go, and these come in their place."""

    path: Path
    at: int
    removed: tuple[Any, ...]
    added: tuple[Any, ...]


class Reorder(NamedTuple):
    """The dict at the path has its keys in this order."""

    path: Path
    keys: tuple[Any, ...]


Edit = Put | Drop | Splice | Reorder


class Recorded(NamedTuple):
    """A step, effect, task or sub-agent of a run that only one of two checkpoints has a record of. Of an effect, with what the
    ledger says of it now."""

    came: bool  # whether it is the second one that has it
    kind: str
    name: str
    status: str
    effect: Effect | None = None

    @property
    def text(self) -> str:
        if self.effect is None:
            return f"{self.kind} {self.name}: {self.status}"
        return f"{self.effect.kind} effect {self.effect.tool} ({self.effect.short_id}): {self.effect.state}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """What leads from checkpoint `a` to checkpoint `b`, both given without their states. False if nothing does.

    `apply` makes the one's state from the other's, exact in every type. Metadata and tasks are compared, too. `recorded` are
    the steps and effects of a run that only one of them has; `files` is what differs between their snapshots, None
    unless both have one (`client.read_file` gives contents).
    """

    a: Checkpoint
    b: Checkpoint
    edits: tuple[Edit, ...]
    recorded: tuple[Recorded, ...] = ()
    files: tuple[FileChange, ...] | None = None

    def __bool__(self) -> bool:
        return bool(self.edits or self.files)

    @property
    def effects(self) -> tuple[Effect, ...]:
        """The effects that `b` has a record of and `a` has not."""
        return tuple(one.effect for one in self.recorded if one.came and one.effect is not None)

    def apply(self, checkpoint: Checkpoint) -> Checkpoint:
        """The checkpoint with these edits made: with `a` restored, the state, metadata and tasks of `b`. Nothing that was
        given is changed."""
        parts = patched({name: getattr(checkpoint, name) for name in PARTS}, self.edits)
        return replace(checkpoint, **parts)

    def json_patch(self) -> list[dict[str, Any]]:
        """The edits of `execution_state` as an RFC 6902 JSON Patch. Raises `UnsupportedValueError` for what JSON can't
        say: keys that are no strings, values of other types. The order of keys is left out: it means nothing there."""
        return json_patch(edit for edit in self.edits if edit.path[0] == PARTS[0])

    def text(self) -> str:
        """The edits for people, one or a few lines each."""
        return "\n".join(f"{sign} {line}" for sign, line in self.lines())

    def lines(self, *, files: bool = True) -> Iterator[tuple[str, str]]:
        """The lines of `text`, in the order of the state, each with its sign: `+` came, `-` went, `~` changed. What a run
        writes down for itself is told as its steps and effects."""
        for edit in sorted(self.edits, key=_place):
            if edit.path[: len(JOURNAL)] != JOURNAL:
                yield from described(edit)
        for one in self.recorded:
            yield "+" if one.came else "-", one.text
        for change in self.files or () if files else ():
            yield {"A": "+", "D": "-"}.get(change.status, "~"), f"file {change.text}"

    def _repr_html_(self) -> str:
        from holdfast.model import notebook

        return notebook.diff(self)


def patched(value: Any, edits: Sequence[Edit]) -> Any:
    """The value with the edits made. It is not changed: containers on the way to an edit are copied, once."""
    holder = {"": value}
    copies: dict[int, Any] = {id(holder): holder}  # holds them, so that no id is given twice
    for edit in edits:
        if isinstance(edit, (Splice, Reorder)):
            container = _own(holder, ("", *edit.path), copies)
            if isinstance(edit, Splice):
                container[edit.at : edit.at + len(edit.removed)] = map(_copied, edit.added)
            else:
                ordered = [(key, container.pop(key)) for key in edit.keys]
                container.update(ordered)
            continue
        container = _own(holder, ("", *edit.path[:-1]), copies)
        if isinstance(edit, Put):
            container[edit.path[-1]] = _copied(edit.value)
        else:
            del container[edit.path[-1]]
    return holder[""]


def _own(holder: Any, path: Path, copies: dict[int, Any]) -> Any:
    """The container at the path, which may be changed: it and those above it are copies."""
    container = holder
    for key in path:
        child = container[key]
        if id(child) not in copies:
            child = child.copy()
            copies[id(child)] = child
            container[key] = child
        container = child
    return container


def _copied(value: Any) -> Any:
    """A value whose lists and dicts are its own."""
    if type(value) is dict:
        return {key: _copied(item) for key, item in value.items()}
    if type(value) is list:
        return [_copied(item) for item in value]
    return value


def path_text(path: Path) -> str:
    """A path as people read it: `execution_state.messages[3].content`."""
    text = str(path[0])
    for key in path[1:]:
        text += f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!r}]"
    return text


def _place(edit: Edit) -> tuple[tuple[int, str, int], ...]:
    """Where an edit is listed: by parts, then by numbers and names."""
    path = (*edit.path, At(edit.at)) if isinstance(edit, Splice) else edit.path
    first = (PARTS.index(path[0]) if path[0] in PARTS else len(PARTS), str(path[0]), 0)
    return (first, *((1, "", key) if isinstance(key, int) else (0, repr(key), 0) for key in path[1:]))


def described(edit: Edit) -> Iterator[tuple[str, str]]:
    where = path_text(edit.path)
    if isinstance(edit, Put) and edit.replaces:
        yield "~", f"{where}: {_short(edit.was)} → {_short(edit.value)}"
    elif isinstance(edit, Put):
        yield "+", f"{where}: {_short(edit.value)}"
    elif isinstance(edit, Drop):
        yield "-", f"{where}: {_short(edit.was)}"
    elif isinstance(edit, Splice):
        for number, element in enumerate(edit.removed, edit.at):
            yield "-", f"{where}[{number}]: {_short(element)}"
        for number, element in enumerate(edit.added, edit.at):
            yield "+", f"{where}[{number}]: {_short(element)}"
    else:
        yield "~", f"{where}: keys in another order"


def _short(value: Any) -> str:
    text = repr(value) if not isinstance(value, (Mapping, list)) or len(repr(value)) <= SHOWN else _outline(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def _outline(value: Any) -> str:
    if isinstance(value, list):
        return f"a list of {len(value)}"
    role = f"{value['role']}: " if isinstance(value.get("role"), str) else ""
    content = value.get("content")
    return f"{role}{content!r}" if isinstance(content, str) else repr(value)
