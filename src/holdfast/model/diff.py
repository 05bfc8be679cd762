"""A difference: the edits that lead from one checkpoint to another.

Edits are made one after the other, each on the result of those before it. Those of a list go from
its end to its front, so that their indexes are those of the old list. A path leads through keys of
dicts, indexes of lists (`At`) and fields of objects (`Field`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from holdfast.model.checkpoint import Checkpoint
from holdfast.model.effect import EffectRecord
from holdfast.model.json_patch import json_patch
from holdfast.model.run_policy import JOURNAL_KEY
from holdfast.model.safe_repr import safe_repr
from holdfast.model.snapshot import FileChange
from holdfast.model.state_view import StateView

JOURNAL = ("agent_context", JOURNAL_KEY)
PARTS = ("execution_state", "agent_context", "metadata", "tasks")
SHOWN = 120
_BETWEEN = " · "
NOT_FIELDS = ""  # no field has this name: it stands for a pydantic model's attributes that are not fields

Path = tuple[Any, ...]


class At(int):
    """An index of a list as part of a path, distinct from a number that is the key of a dict."""

    __slots__ = ()


class Field(str):
    """A field of an object as part of a path, distinct from the key of a dict."""

    __slots__ = ()


class Objects(Protocol):
    """An interface that takes objects apart for editing and rebuilds them."""

    def take_apart(self, value: Any) -> Any:
        """Return an object whose `fields` are the parts of the value."""

    def put_together(self, value: Any) -> Any:
        """Return the value with the results of `take_apart` rebuilt as objects."""


class Put(NamedTuple):
    """An edit that puts `value` at the path: as a new key or, if `replaces`, instead of `was`."""

    path: Path
    value: Any
    was: Any = None
    replaces: bool = False


class Drop(NamedTuple):
    """An edit that removes a key of a dict."""

    path: Path
    was: Any


class Splice(NamedTuple):
    """An edit that replaces elements of the list at the path, from `at` on, by others."""

    path: Path
    at: int
    removed: tuple[Any, ...]
    added: tuple[Any, ...]


class Reorder(NamedTuple):
    """An edit that puts the keys of the dict at the path into this order."""

    path: Path
    keys: tuple[Any, ...]


Edit = Put | Drop | Splice | Reorder


@dataclass(frozen=True, slots=True)
class Stat:
    """The number of values that were added, removed and changed."""

    added: int = 0
    removed: int = 0
    changed: int = 0

    def __add__(self, other: Stat) -> Stat:
        return Stat(self.added + other.added, self.removed + other.removed, self.changed + other.changed)

    @property
    def total(self) -> int:
        return self.added + self.removed + self.changed

    @property
    def text(self) -> str:
        """The numbers as text: `+3 -1 ~2`."""
        counted = (("+", self.added), ("-", self.removed), ("~", self.changed))
        return " ".join(f"{sign}{count:,}" for sign, count in counted if count)


class RecordedCall(NamedTuple):
    """A step, effect, task or sub-agent of a run that only one of two checkpoints has recorded.

    An effect comes with the present state of its ledger entry.
    """

    came: bool  # whether the second checkpoint has it
    kind: str
    name: str
    status: str
    effect: EffectRecord | None = None

    @property
    def text(self) -> str:
        if self.effect is None:
            return f"{self.kind} {self.name}: {self.status}"
        return f"{self.effect.kind} effect {self.effect.tool} ({self.effect.short_id}): {self.effect.state}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """The difference between checkpoints `a` and `b`, both given without their states; false if empty.

    `apply` makes the state of one from the other's, exact in every type. Metadata and tasks are
    compared, too. `recorded` are the steps and effects of a run that only one of them has. `files`
    are the differences between their snapshots, None unless both have one (`client.read_file`
    returns contents).
    """

    a: Checkpoint
    b: Checkpoint
    edits: tuple[Edit, ...]
    recorded: tuple[RecordedCall, ...] = ()
    files: tuple[FileChange, ...] | None = None
    objects: Objects | None = field(
        default=None, repr=False, compare=False
    )  # needed where a path leads through an object

    view: StateView | None = field(default=None, repr=False, compare=False)  # where one adapter made both

    def __bool__(self) -> bool:
        return bool(self.edits or self.files)

    @property
    def effects(self) -> tuple[EffectRecord, ...]:
        """The effects that `b` has a record of and `a` has not."""
        return tuple(call.effect for call in self.recorded if call.came and call.effect is not None)

    def apply(self, checkpoint: Checkpoint) -> Checkpoint:
        """Return the checkpoint with these edits made: from `a`, the state, metadata and tasks of `b`.

        The given checkpoint is not changed.
        """
        parts = patch({name: getattr(checkpoint, name) for name in PARTS}, self.edits, self.objects)
        return replace(checkpoint, **parts)

    def json_patch(self) -> list[dict[str, Any]]:
        """Return the edits of `execution_state` as an RFC 6902 JSON Patch.

        Raises `UnsupportedValueError` for values that JSON can't express: keys that are no strings,
        values of other types. The order of keys is left out, since JSON objects have none.
        """
        return json_patch(edit for edit in self.edits if edit.path[0] == PARTS[0])

    def text(self) -> str:
        """Return the edits as text, one or a few lines each."""
        return "\n".join(f"{sign} {line}" for sign, line in self.lines())

    def lines(self, *, files: bool = True, raw: bool = False, each: int | None = None) -> Iterator[tuple[str, str]]:
        """Yield the lines of `text`, in the order of the state, each with its sign.

        `+` came, `-` went, `~` changed, `@` is about all of it. A run's own records are shown as its steps and effects,
        checkpoints of an adapter as its framework's users know them; with `raw`, these are shown as they are stored.
        `each` limits the edits that are shown of each path that `stat` counts.
        """
        if not raw and self.view is not None and (summary := self.view.summary(self)):
            yield "@", summary
        counts = Counter[Path]()
        for edit in sorted(self.shown_edits(raw=raw), key=_place):
            counts[_counted_path(edit)] += 1
            if each is None or counts[_counted_path(edit)] <= each:
                yield from describe(edit)
        for call in self.recorded:
            yield "+" if call.came else "-", call.text
        for change in self.files or () if files else ():
            yield {"A": "+", "D": "-"}.get(change.status, "~"), f"file {change.text}"

    def shown_edits(self, *, raw: bool = False) -> Iterator[Edit]:
        """Yield the edits that `lines` shows."""
        edits = [edit for edit in self.edits if edit.path[: len(JOURNAL)] != JOURNAL]
        if not raw and self.view is not None:
            edits = [*self.view.value_edits(edits)]
        return _without_repetitions(edits)

    def stat(self, *, raw: bool = False) -> dict[str, Stat]:
        """Return how many values were added, removed and changed, by path.

        A list is counted as a whole, including changes in its elements. Files are counted together,
        as `files`; steps and effects of a run as `recorded`.
        """
        found: dict[str, Stat] = {}
        for edit in sorted(self.shown_edits(raw=raw), key=_place):
            _count(found, path_text(_counted_path(edit)), edit)
        for call in self.recorded:
            found["recorded"] = found.get("recorded", Stat()) + (Stat(1) if call.came else Stat(0, 1))
        for change in self.files or ():
            counted = {"A": Stat(1), "D": Stat(0, 1)}.get(change.status, Stat(0, 0, 1))
            found["files"] = found.get("files", Stat()) + counted
        return found

    def _repr_html_(self) -> str:
        from holdfast.model import html_repr

        return html_repr.diff(self)


def _counted_path(edit: Edit) -> Path:
    """Return the path of an edit, cut after the first list that it leads through."""
    for place, key in enumerate(edit.path):
        if type(key) is At and not _is_rest_of_model(edit.path[place - 1]):
            return edit.path[:place]
    return edit.path


def _count(found: dict[str, Stat], where: str, edit: Edit) -> None:
    if isinstance(edit, Splice):
        counted = Stat(len(edit.added), len(edit.removed))
    elif isinstance(edit, Put) and not edit.replaces:
        counted = Stat(1)
    else:
        counted = Stat(0, 1) if isinstance(edit, Drop) else Stat(0, 0, 1)
    found[where] = found.get(where, Stat()) + counted


def patch(value: Any, edits: Sequence[Edit], objects: Objects | None = None) -> Any:
    """Return the value with the edits made.

    The given value is not changed: each container on the way to an edit is copied once.
    """
    copies = _TreeCopier(objects)
    holder = copies.hold({"": value})
    for edit in edits:
        if isinstance(edit, (Splice, Reorder)):
            container = copies.get_container(holder, ("", *edit.path))
            if isinstance(edit, Splice):
                container[edit.at : edit.at + len(edit.removed)] = map(_copy_containers, edit.added)
            else:
                ordered = [(key, container.pop(key)) for key in edit.keys]
                container.update(ordered)
            continue
        container = copies.get_container(holder, ("", *edit.path[:-1]))
        if isinstance(edit, Put):
            container[edit.path[-1]] = _copy_containers(edit.value)
        else:
            del container[edit.path[-1]]
    return copies.finish(holder)[""]


class _TreeCopier:
    """Copies of the containers on the way to an edit; objects there are taken apart."""

    def __init__(self, objects: Objects | None) -> None:
        self._objects = objects
        self._held: dict[int, Any] = {}  # holds references, so that no id is reused
        self._apart: dict[int, Any] = {}

    def hold(self, container: Any) -> Any:
        self._held[id(container)] = container
        return container

    def get_container(self, holder: Any, path: Path) -> Any:
        """Return the container at the path, free to change: it and those above it are copies."""
        container = holder
        for key in path:
            child = container[key]
            if id(child) in self._apart:
                container = child.fields
                continue
            if id(child) not in self._held:
                apart = self._take_apart(child)
                if apart is not None:
                    container[key] = apart
                    container = apart.fields
                    continue
                child = self.hold(child.copy())
                container[key] = child
            container = child
        return container

    def _take_apart(self, value: Any) -> Any:
        """Return an object as its parts, free to change; None for a list or dict."""
        if self._objects is None or type(value) in (dict, list):
            return None
        apart = self._objects.take_apart(value)
        apart.fields = self.hold(apart.fields.copy())
        self._apart[id(apart)] = apart
        return apart

    def finish(self, container: Any) -> Any:
        """Return the container with its objects rebuilt."""
        if not self._apart:
            return container
        for key, child in container.items() if type(container) is dict else enumerate(container):
            if id(child) in self._apart:
                self.finish(child.fields)
                container[key] = self._objects.put_together(child) if self._objects is not None else child
            elif id(child) in self._held:
                self.finish(child)
        return container


def _copy_containers(value: Any) -> Any:
    """Return a value whose lists and dicts are copies."""
    if type(value) is dict:
        return {key: _copy_containers(item) for key, item in value.items()}
    if type(value) is list:
        return [_copy_containers(item) for item in value]
    return value


def path_text(path: Path) -> str:
    """Return a path as text: `execution_state.messages[3].content`."""
    text = str(path[0])
    for key, before in zip(path[1:], path, strict=False):
        if _is_rest_of_model(key) or _is_rest_of_model(before):
            continue  # an attribute of a model that is not a field: its name follows
        text += f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{safe_repr(key)}]"
    return text


def _is_rest_of_model(key: Any) -> bool:
    return type(key) is Field and key == NOT_FIELDS


def _find_set_fields(edit: Edit) -> Path | None:
    """Return the path of a model if the edit only says that other fields were set; otherwise None."""
    for place, key in enumerate(edit.path):
        if _is_rest_of_model(key):
            return edit.path[:place] if edit.path[place + 1 : place + 2] in ((), (0,)) else None
    return None


def _without_repetitions(edits: Sequence[Edit]) -> Iterator[Edit]:
    """Yield the edits, without changes to a model's set fields where another edit is about the model."""
    about_sets = [_find_set_fields(edit) for edit in edits]
    named = {
        edit.path[:length]
        for edit, model in zip(edits, about_sets, strict=True)
        if model is None and Field in map(type, edit.path)
        for length in range(1, len(edit.path) + 1)
    }
    for edit, model in zip(edits, about_sets, strict=True):
        if model is None:
            yield edit
        elif model not in named:
            named.add(model)
            yield edit


def _place(edit: Edit) -> tuple[tuple[int, str, int], ...]:
    """Return the sort key of an edit: by parts, then by numbers and names."""
    path = (*edit.path, At(edit.at)) if isinstance(edit, Splice) else edit.path
    path = tuple(
        key
        for key, before in zip(path, (None, *path), strict=False)
        if not _is_rest_of_model(key) and not _is_rest_of_model(before)
    )
    first = (PARTS.index(path[0]) if path[0] in PARTS else len(PARTS), str(path[0]), 0)
    return (first, *((1, "", key) if isinstance(key, int) else (0, safe_repr(key), 0) for key in path[1:]))


def describe(edit: Edit) -> Iterator[tuple[str, str]]:
    """Yield the lines of an edit as text, each with its sign."""
    where = path_text(edit.path)
    if _find_set_fields(edit) is not None:
        yield "~", f"{where}: other fields were set"
    elif isinstance(edit, Put) and edit.replaces:
        yield "~", f"{where}: {_short(edit.was)} → {_short(edit.value)}"
    elif isinstance(edit, Put):
        yield "+", f"{where}: {_short(edit.value)}"
    elif isinstance(edit, Drop):
        yield "-", f"{where}: {_short(edit.was)}"
    elif isinstance(edit, Splice):
        yield from _run("-", where, edit.at, edit.removed)
        yield from _run("+", where, edit.at, edit.added)
    else:
        yield "~", f"{where}: keys in another order"


def _run(sign: str, where: str, at: int, elements: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """Yield one line for adjacent elements that were added or removed."""
    if len(elements) == 1:
        yield sign, f"{where}[{at}]: {_short(elements[0])}"
    elif elements:
        done = "added" if sign == "+" else "removed"
        yield sign, f"{where}[{at}..{at + len(elements) - 1}] {done} ({len(elements)} elements): {_gist(elements)}"


def _gist(elements: Sequence[Any]) -> str:
    """Return the first of several elements as text, as many as fit on a line."""
    parts: list[str] = []
    room = SHOWN
    for element in elements:
        part = _short(element, max(room // 2, SHOWN // 3))
        room -= len(part) + len(_BETWEEN)
        if parts and room < 0:
            return _BETWEEN.join([*parts, "…"])
        parts.append(part)
    return _BETWEEN.join(parts)


def _short(value: Any, most: int = SHOWN) -> str:
    text = (
        safe_repr(value) if not isinstance(value, (Mapping, list)) or len(safe_repr(value)) <= most else _outline(value)
    )
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _outline(value: Any) -> str:
    if isinstance(value, list):
        return f"a list of {len(value)}"
    role = f"{value['role']}: " if isinstance(value.get("role"), str) else ""
    content = value.get("content")
    return f"{role}{content!r}" if isinstance(content, str) else safe_repr(value)
