"""The search for differences between two states of which only the skeletons are loaded.

A *stub* with a digest represents a long list or a blob. Two stubs of one digest are equal, and
their contents are never read. For two lists that differ, their manifests' spans tell which elements
they share (`span_match.py`); the rest, their *middles*, must be read. So there are two passes: the
first finds out which elements to read, the second compares with them.

Objects are compared by their fields, as they are stored: their classes are needed only for values
in an edit.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.codec.codec import Codec
from holdfast.codec.placeholders import TypedObject
from holdfast.codec.standard_types import is_standard
from holdfast.codec.stored_objects import NO_TYPE, put_together, stored_codec
from holdfast.format.state.list_alignment import Range, find_changed
from holdfast.format.state.manifest import ListEntry
from holdfast.model.diff import NOT_FIELDS, At, Drop, Edit, Field, Path, Put, Reorder, Splice, path_text

_BY_EQUALITY = frozenset((str, bytes, int, bool, type(None)))  # values of these types can be matched by equality
_STUB = NO_TYPE  # the name of these TypedObject, which are compared and never stored
_REST_LENGTH = 3  # a pydantic model's parts other than fields: names, extra and private attributes

Part = tuple[bytes, int]  # a digest, and the length of a list or, for a blob, the negated kind


class Middle(NamedTuple):
    """The elements of one gap that two lists don't share, encoded, and their first index."""

    first: int
    old: Sequence[bytes]
    new: Sequence[bytes]


def list_stub(entry: ListEntry) -> TypedObject:
    return TypedObject(_STUB, (entry.digest, entry.length))


def blob_stub(kind: int, hash_: bytes) -> TypedObject:
    return TypedObject(_STUB, (hash_, -kind))


def is_list(part: Part) -> bool:
    return part[1] > 0


class Differ:
    """A search for differences.

    `pairs` and `whole` name the parts that it had to leave out because they are not loaded. With
    these in `middles` and `contents`, another pass leaves out nothing.
    """

    def __init__(
        self,
        codec: Codec,
        middles: Mapping[tuple[Part, Part], Sequence[Middle]] | None = None,
        contents: Mapping[Part, Any] | None = None,
    ) -> None:
        self.pairs: set[tuple[Part, Part]] = set()
        self.whole: set[Part] = set()
        self._codec = codec
        self._stored = stored_codec(codec)
        self._middles = middles or {}
        self._contents = contents or {}

    def edits(self, old: Any, new: Any, path: Path) -> Iterator[Edit]:
        """Yield the edits that lead from the old value to the new one."""
        if is_stub(old) or is_stub(new):
            yield from self._stubs(old, new, path)
        elif type(old) is not type(new):
            yield Put(path, new, old, replaces=True)
        elif type(old) is dict and _BY_EQUALITY.issuperset(map(type, (*old, *new))):
            yield from self._diff_dicts(old, new, path)
        elif type(old) is list:
            encoded = [[self._encode(item) for item in items] for items in (old, new)]
            yield from self._diff_lists(find_changed(encoded[0], encoded[1]), old, new, path, 0)
        elif (fields := self._fields_of_both(old, new)) is not None:
            yield from self._diff_objects(*fields, path)
        elif not self._is_same(old, new):
            yield Put(path, new, old, replaces=True)

    def _fields_of_both(self, old: Any, new: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return the fields of two objects of one type; None if they must be compared as a whole.

        The latter holds for other values, and for objects whose fields are not stored by name or
        are in another order.
        """
        typed_object, other = self._take_apart(old), self._take_apart(new)
        if typed_object is None or other is None or typed_object.name != other.name or is_standard(typed_object.name):
            return None
        fields, others = typed_object.fields, other.fields
        if (
            type(fields) is not dict
            or type(others) is not dict
            or not {*map(type, fields), *map(type, others)} <= {str}
        ):
            return None
        in_order = [*(name for name in fields if name in others), *(name for name in others if name not in fields)]
        return (fields, others) if in_order == [*others] else None

    def _take_apart(self, value: Any) -> TypedObject | None:
        """Return an object as it is stored; None for anything else."""
        if type(value) is TypedObject:
            return value
        taken = self._codec.take_apart(value) if self._codec.takes_apart(type(value)) else None
        return taken if type(taken) is TypedObject else None

    def _diff_objects(self, old: dict[str, Any], new: dict[str, Any], path: Path) -> Iterator[Edit]:
        for name, item in old.items():
            if name not in new:
                yield Drop((*path, Field(name)), item)
        for name, item in new.items():
            below = (*path, Field(name))
            if name not in old:
                yield Put(below, item)
            elif name == NOT_FIELDS and type(item) is list and len(item) == _REST_LENGTH and _is_like(old[name], item):
                for place, (was, becomes) in enumerate(zip(old[name], item, strict=True)):
                    yield from self.edits(was, becomes, (*below, At(place)))
            else:
                yield from self.edits(old[name], item, below)

    def _diff_dicts(self, old: dict[Any, Any], new: dict[Any, Any], path: Path) -> Iterator[Edit]:
        old_keys = {(type(key), key): key for key in old}  # 1 and True are two keys
        new_keys = {(type(key), key): key for key in new}
        for known, key in old_keys.items():
            if known not in new_keys:
                yield Drop((*path, key), old[key])
        for known, key in new_keys.items():
            if known in old_keys:
                yield from self.edits(old[old_keys[known]], new[key], (*path, key))
            else:
                yield Put((*path, key), new[key])
        left = [known for known in old_keys if known in new_keys]
        if left + [known for known in new_keys if known not in old_keys] != list(new_keys):
            yield Reorder(path, tuple(new))

    def _diff_lists(
        self, stretches: Sequence[Range], old: Sequence[Any], new: Sequence[Any], path: Path, first: int
    ) -> Iterator[Edit]:
        """Yield the edits of a list from the end to the front. `first` is the index of the element at 0."""
        for stretch in reversed(stretches):
            before = [old[place] for place in range(stretch.old_first, stretch.old_end)]
            after = [new[place] for place in range(stretch.new_first, stretch.new_end)]
            paired = 0
            while paired < min(len(before), len(after)) and self._is_same_object(before[paired], after[paired]):
                paired += 1
            at = first + stretch.old_first
            if len(before) > paired or len(after) > paired:
                yield Splice(path, at + paired, tuple(before[paired:]), tuple(after[paired:]))
            for place in reversed(range(paired)):
                yield from self.edits(before[place], after[place], (*path, At(at + place)))

    def _is_same_object(self, old: Any, new: Any) -> bool:
        """Return whether an element was edited rather than replaced.

        True for dicts, or objects of one type, with the same id or, without ids, with at least half
        of the values equal.
        """
        if type(old) is not dict or type(new) is not dict:
            both = self._fields_of_both(old, new) if not (is_stub(old) or is_stub(new)) else None
            if both is None:
                return False
            old, new = both
        if "id" in old or "id" in new:
            ids = [element.get("id") for element in (old, new)]
            if ids != [None, None]:  # None: messages that have no id yet
                return "id" in old and "id" in new and self._is_same(*ids)
        equal = sum(key in new and self._is_same(item, new[key]) for key, item in old.items() if key != NOT_FIELDS)
        return equal > 0 and 2 * equal >= max(len(old.keys() - {NOT_FIELDS}), len(new.keys() - {NOT_FIELDS}))

    def _stubs(self, old: Any, new: Any, path: Path) -> Iterator[Edit]:
        if is_stub(old) and is_stub(new):
            if old.fields == new.fields:
                return
            if is_list(old.fields) and is_list(new.fields):
                yield from self._diff_long_lists(old, new, path)
                return
        at_hand = [self._content(value) for value in (old, new)]
        if any(map(is_stub, at_hand)):
            return  # compared again when it has been read
        yield from self.edits(at_hand[0], at_hand[1], path)

    def _diff_long_lists(self, old: TypedObject, new: TypedObject, path: Path) -> Iterator[Edit]:
        pair = (old.fields, new.fields)
        found = self._middles.get(pair)
        if found is None:
            self.pairs.add(pair)
            return
        for middle in reversed(found):
            decoded = (_DecodedList(self._stored, middle.old), _DecodedList(self._stored, middle.new))
            yield from self._diff_lists(
                find_changed(middle.old, middle.new), decoded[0], decoded[1], path, middle.first
            )

    def _content(self, value: Any) -> Any:
        """Return the value, or the content of the stub, if it was read."""
        if not is_stub(value):
            return value
        if value.fields not in self._contents:
            self.whole.add(value.fields)
        return self._contents.get(value.fields, value)

    def fill_stubs(self, value: Any, path: Path) -> Any:
        """Return the value with its stubs replaced by their contents and its objects rebuilt.

        A value that is not loaded yet is returned unchanged.
        """
        filled = self._fill(value)
        return filled if self.whole or self.pairs else put_together(self._codec, filled, path_text(path))

    def _fill(self, value: Any) -> Any:
        if type(value) is TypedObject:
            return self._content(value) if is_stub(value) else TypedObject(value.name, self._fill(value.fields))
        if type(value) is dict:
            return {key: self._fill(item) for key, item in value.items()}
        if type(value) is list:
            return [self._fill(item) for item in value]
        return value

    def _is_same(self, old: Any, new: Any) -> bool:
        if type(old) is not type(new):
            return False
        if type(old) in _BY_EQUALITY:
            return bool(old == new)
        if type(old) is float:
            return struct.pack("<d", old) == struct.pack("<d", new)
        return self._encode(old) == self._encode(new)

    def _encode(self, value: Any) -> bytes:
        return self._codec.encode(value, parts=True)


def is_stub(value: Any) -> bool:
    return type(value) is TypedObject and value.name == _STUB


def _is_like(value: Any, other: list[Any]) -> bool:
    return type(value) is list and len(value) == len(other)


class _DecodedList(Sequence[Any]):
    """The elements of a list, decoded on access."""

    def __init__(self, codec: Codec, elements: Sequence[bytes]) -> None:
        self._codec = codec
        self._elements = elements

    def __len__(self) -> int:
        return len(self._elements)

    def __getitem__(self, place: Any) -> Any:
        return self._codec.decode(self._elements[place])
