"""Finding the differences of two states, of which only the skeletons need to be at hand.

In the place of a long list or a blob stands a *stub*, which says its digest. Two stubs of one digest are equal, and what
they stand for is never read. Where two lists meet that differ, their manifests' spans tell which elements they share at
both ends; the rest, their *middles*, must be read. So differences are looked for twice: first to learn what must be
read, then with that.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.backends.port import Span
from holdfast.codec.codec import Codec
from holdfast.codec.parts import Typed
from holdfast.model.diff import At, Drop, Edit, Path, Put, Reorder, Splice
from holdfast.objects.manifest import ListEntry
from holdfast.objects.matching import Stretch, changed

_BY_EQUALITY = frozenset((str, bytes, int, bool, type(None)))  # these types' values are found again by equality
_STUB = "holdfast stub"  # the name of these Typed, which are compared and never stored

Part = tuple[bytes, int]  # a digest, and the length of a list or, for a blob, the negated kind


class Ends(NamedTuple):
    """How many elements two lists share at their beginnings and at their ends, as far as their spans tell."""

    first: int
    last: int


class Middles(NamedTuple):
    """The encodings of what two lists don't share, and how many elements come before."""

    first: int
    old: Sequence[bytes]
    new: Sequence[bytes]


def list_stub(entry: ListEntry) -> Typed:
    return Typed(_STUB, (entry.digest, entry.length))


def blob_stub(kind: int, hash_: bytes) -> Typed:
    return Typed(_STUB, (hash_, -kind))


def is_list(part: Part) -> bool:
    return part[1] > 0


def shared_ends(old: ListEntry, new: ListEntry) -> Ends:
    """Elements of the same number of the same log are the same."""
    first = _shared(old.spans, new.spans)
    room = min(old.length, new.length) - first
    last = _shared([_mirrored(span) for span in reversed(old.spans)], [_mirrored(span) for span in reversed(new.spans)])
    return Ends(first, min(last, room))


def _mirrored(span: Span) -> Span:
    """So that the end of a span is its beginning."""
    return Span(span.log, -span.end, -span.first)


def _shared(old: Sequence[Span], new: Sequence[Span]) -> int:
    shared = 0
    left, right = iter(old), iter(new)
    a, b = next(left, None), next(right, None)
    while a is not None and b is not None and (a.log, a.first) == (b.log, b.first):
        step = min(a.end, b.end) - a.first
        shared += step
        a = Span(a.log, a.first + step, a.end) if a.first + step < a.end else next(left, None)
        b = Span(b.log, b.first + step, b.end) if b.first + step < b.end else next(right, None)
    return shared


def cut(entry: ListEntry, ends: Ends) -> list[Span]:
    """The spans of what is between the ends."""
    found, place, end = [], 0, entry.length - ends.last
    for span in entry.spans:
        low = max(ends.first - place, 0)
        high = min(end - place, span.end - span.first)
        if low < high:
            found.append(Span(span.log, span.first + low, span.first + high))
        place += span.end - span.first
    return found


class Differ:
    """Looks for differences. What it had to leave out, because it is not at hand, is named in `pairs` and `whole`; with
    that in `middles` and `contents`, another look leaves out nothing."""

    def __init__(
        self,
        codec: Codec,
        middles: Mapping[tuple[Part, Part], Middles] | None = None,
        contents: Mapping[Part, Any] | None = None,
    ) -> None:
        self.pairs: set[tuple[Part, Part]] = set()
        self.whole: set[Part] = set()
        self._codec = codec
        self._middles = middles or {}
        self._contents = contents or {}

    def edits(self, old: Any, new: Any, path: Path) -> Iterator[Edit]:
        """What leads from the one value to the other."""
        if type(old) is Typed or type(new) is Typed:
            yield from self._stubs(old, new, path)
        elif type(old) is not type(new):
            yield Put(path, new, old, replaces=True)
        elif type(old) is dict and _BY_EQUALITY.issuperset(map(type, (*old, *new))):
            yield from self._of_dicts(old, new, path)
        elif type(old) is list:
            encoded = [[self._encode(item) for item in items] for items in (old, new)]
            yield from self._of_lists(changed(encoded[0], encoded[1]), old, new, path, 0)
        elif not self._same(old, new):
            yield Put(path, new, old, replaces=True)

    def _of_dicts(self, old: dict[Any, Any], new: dict[Any, Any], path: Path) -> Iterator[Edit]:
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

    def _of_lists(
        self, stretches: Sequence[Stretch], old: Sequence[Any], new: Sequence[Any], path: Path, first: int
    ) -> Iterator[Edit]:
        """From the end to the front. `first` is the place of the elements at 0."""
        for stretch in reversed(stretches):
            before = [old[place] for place in range(stretch.old_first, stretch.old_end)]
            after = [new[place] for place in range(stretch.new_first, stretch.new_end)]
            paired = 0
            while paired < min(len(before), len(after)) and self._is_same_thing(before[paired], after[paired]):
                paired += 1
            at = first + stretch.old_first
            if len(before) > paired or len(after) > paired:
                yield Splice(path, at + paired, tuple(before[paired:]), tuple(after[paired:]))
            for place in reversed(range(paired)):
                yield from self.edits(before[place], after[place], (*path, At(at + place)))

    def _is_same_thing(self, old: Any, new: Any) -> bool:
        """Whether an element was edited rather than replaced: dicts with the same id or, without one, half of whose
        values are equal."""
        if type(old) is not dict or type(new) is not dict:
            return False
        if "id" in old or "id" in new:
            return "id" in old and "id" in new and self._same(old["id"], new["id"])
        equal = sum(key in new and self._same(item, new[key]) for key, item in old.items())
        return equal > 0 and 2 * equal >= max(len(old), len(new))

    def _stubs(self, old: Any, new: Any, path: Path) -> Iterator[Edit]:
        if type(old) is type(new):
            if old.fields == new.fields:
                return
            if is_list(old.fields) and is_list(new.fields):
                yield from self._of_long_lists(old, new, path)
                return
        at_hand = [self._content(value) for value in (old, new)]
        if any(type(value) is Typed for value in at_hand):
            return  # looked at again when it has been read
        yield from self.edits(at_hand[0], at_hand[1], path)

    def _of_long_lists(self, old: Typed, new: Typed, path: Path) -> Iterator[Edit]:
        pair = (old.fields, new.fields)
        found = self._middles.get(pair)
        if found is None:
            self.pairs.add(pair)
            return
        decoded = (_Decoded(self._codec, found.old), _Decoded(self._codec, found.new))
        yield from self._of_lists(changed(found.old, found.new), decoded[0], decoded[1], path, found.first)

    def _content(self, value: Any) -> Any:
        """The value, or what the stub stands for, if it was read."""
        if type(value) is not Typed:
            return value
        if value.fields not in self._contents:
            self.whole.add(value.fields)
        return self._contents.get(value.fields, value)

    def filled(self, value: Any) -> Any:
        """The value with what its stubs stand for."""
        if type(value) is Typed:
            return self._content(value)
        if type(value) is dict:
            return {key: self.filled(item) for key, item in value.items()}
        if type(value) is list:
            return [self.filled(item) for item in value]
        return value

    def _same(self, old: Any, new: Any) -> bool:
        if type(old) is not type(new):
            return False
        if type(old) in _BY_EQUALITY:
            return bool(old == new)
        if type(old) is float:
            return struct.pack("<d", old) == struct.pack("<d", new)
        return self._encode(old) == self._encode(new)

    def _encode(self, value: Any) -> bytes:
        return self._codec.encode(value, parts=True)


class _Decoded(Sequence[Any]):
    """The elements of a list, decoded when they are asked for."""

    def __init__(self, codec: Codec, elements: Sequence[bytes]) -> None:
        self._codec = codec
        self._elements = elements

    def __len__(self) -> int:
        return len(self._elements)

    def __getitem__(self, place: Any) -> Any:
        return self._codec.decode(self._elements[place])
