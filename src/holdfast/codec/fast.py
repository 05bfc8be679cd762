"""The quick way to encode: one C call, after a proof that it will be exact.

ormsgpack packs a few types that are not its own natively and so loses them: bytearray and memoryview become bytes,
and Ext and Fragment objects of the caller would be written raw. The proof looks at the types of all that ormsgpack would
pack by itself. What it hands to `_default` is proven there, payload by payload.

Any doubt raises; the caller then takes the exact way (see exact.py), which gives the same bytes or says what is wrong.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import ormsgpack

from holdfast.codec import tags
from holdfast.codec.builtin import ATOMS, ENCODERS, hashes_are_spread, path_encoder
from holdfast.codec.parts import Ref, Typed
from holdfast.codec.types import RegisteredType, object_header

if TYPE_CHECKING:
    from collections.abc import Collection

    from holdfast.codec.limits import Limits

# A few payloads inside each other are all the quick way takes: it can't know how deep inside its value a payload is,
# so it divides the allowed depth evenly among them.
_MAX_NESTING = 7

_PLAIN_CONTAINERS = frozenset({list, dict})
_NATIVE_TRAPS = frozenset({bytearray, memoryview, ormsgpack.Ext, ormsgpack.Fragment})

# Up to here a loop over the values of a container is faster than setting out to look at them all at once.
_FEW = 8

# From here on a look at a whole level of containers at once is faster than one at each value.
_MANY = 64

_packb = ormsgpack.packb
_Ext = ormsgpack.Ext


class NotSureError(Exception):
    """The quick way can't show that it would be exact."""


def encode_ref(ref: Ref) -> bytes:
    return bytes((ref.kind,)) + ref.index.to_bytes(max(1, (ref.index.bit_length() + 7) // 8))


def holds_native_traps(items: list[Any]) -> bool:
    """Whether ormsgpack silently changes something in `items`, which it was able to pack (so they are finite)."""
    level: list[Any] = [items]
    while level:
        level, trapped = _look_into(level)
        if trapped:
            return True
    return False


def _look_into(containers: list[Any]) -> tuple[list[Any], bool]:
    """The lists and dicts directly inside of `containers`, and whether a native trap is inside of them.

    One C call lists the contents of all of them. For many values that is faster than a loop over each.
    """
    contents = gc.get_referents(*containers)
    kinds = set(map(type, contents))
    if kinds.isdisjoint(_PLAIN_CONTAINERS):
        inside = []
    else:
        inside = [value for value in contents if type(value) in _PLAIN_CONTAINERS]
    return inside, not kinds.isdisjoint(_NATIVE_TRAPS)


class QuickEncoder:
    """Encodes one value (or the items of one list); not to be used again.

    ormsgpack replaces whatever its hook raises by a TypeError. A KeyboardInterrupt among that is kept in
    `interruption`, for the caller to raise.
    """

    __slots__ = (
        "_by_class",
        "_items_left",
        "_last",
        "_nesting",
        "_parts",
        "_room",
        "interruption",
        "nested_bytes",
        "room_left",
    )

    def __init__(
        self,
        by_class: dict[type[Any], RegisteredType],
        limits: Limits,
        *,
        parts: bool = False,
        most_bytes: int | None = None,
    ) -> None:
        self._by_class = by_class
        self._parts = parts
        self._items_left = limits.max_items
        self._nesting = 0
        self._room = (limits.max_depth - _MAX_NESTING) // (_MAX_NESTING + 1)
        self.nested_bytes = 0
        self._last = 0  # the length of the last payload
        # For payloads that are in no other one, which all are part of the result: below zero, it is longer than was asked for.
        self.room_left = limits.max_bytes if most_bytes is None else most_bytes
        self.interruption: BaseException | None = None

    def encode(self, value: Any) -> bytes:
        kind = type(value)
        if kind is dict:
            self._prove(value.values(), self._room)
        elif kind is list:
            self._prove(value, self._room)
        elif kind in _NATIVE_TRAPS:
            raise NotSureError
        return _packb(value, self._default, tags.PACK_OPTIONS)

    def pack(self, value: Any) -> bytes:
        """Encode without proof."""
        return _packb(value, self._default, tags.PACK_OPTIONS)

    def prove_items(self, items: list[Any]) -> None:
        """Prove all items of a list at once."""
        if len(items) > _MANY:
            self._prove_level_by_level(items)
        else:
            self._prove(items, self._room)

    def _prove(self, values: Collection[Any], room: int) -> None:
        if room < 1 or len(values) > _MANY:
            self._prove_by_levels(values, room)
            return
        seen, containers, atoms = [*values], 1, 0
        for value in seen:  # to which the contents of the containers among them are added meanwhile
            kind = type(value)
            if kind is str or kind in ATOMS:
                continue
            if kind is dict:
                seen += value.values()
            elif kind is list:
                if len(value) > _FEW and ATOMS.issuperset(map(type, value)):  # as in `_prove_by_levels`
                    atoms += len(value)
                else:
                    seen += value
            elif kind in _NATIVE_TRAPS:
                raise NotSureError
            else:
                continue
            containers += 1
            if len(seen) > _MANY:
                break
        if containers > room or len(seen) > _MANY:  # else there are too few containers for any to be too deep
            self._prove_by_levels(values, room)
            return
        self._items_left -= len(seen) + atoms
        if self._items_left < 0:
            raise NotSureError

    def _prove_by_levels(self, values: Collection[Any], room: int) -> None:
        level: list[Collection[Any]] = [values]
        left = self._items_left
        while level:
            room -= 1
            if room < 0:
                raise NotSureError
            inside: list[Collection[Any]] = []
            for of_one in level:
                # Also what ends a value that is small but unfolds to a huge one, because it holds the same list many times.
                size = len(of_one)
                left -= size
                if left < 0:
                    raise NotSureError
                # In C: most that hold no containers hold nothing else. To set out costs more than a few values do.
                if size > _FEW and ATOMS.issuperset(map(type, of_one)):
                    continue
                for value in of_one:
                    kind = type(value)
                    if kind is str or kind is int:
                        continue
                    if kind is dict:
                        inside.append(value.values())
                    elif kind is list:
                        inside.append(value)
                    elif kind in _NATIVE_TRAPS:
                        raise NotSureError
            level = inside
        self._items_left = left

    def _prove_level_by_level(self, items: list[Any]) -> None:
        level: list[Any] = [items]
        for _ in range(self._room):
            # Counted before it is listed, for the reason given above.
            self._items_left -= sum(map(len, level))
            if self._items_left < 0:
                raise NotSureError
            level, trapped = _look_into(level)
            if trapped:
                raise NotSureError
            if not level:
                return
        raise NotSureError

    def _default(self, value: Any) -> ormsgpack.Ext:
        try:
            ext = self._as_ext(value)
        except Exception:
            raise
        except BaseException as error:
            self.interruption = error
            raise
        if not self._nesting:
            self.room_left -= self._last
            if self.room_left < 0:
                raise NotSureError
        return ext

    def _as_ext(self, value: Any) -> ormsgpack.Ext:
        kind = type(value)
        simple = ENCODERS.get(kind)
        if simple is not None:
            code, encode = simple
            return self._ext(code, encode(value))
        if self._nesting >= _MAX_NESTING or self._room < 1:
            raise NotSureError
        self._nesting += 1
        if kind is tuple:
            ext = self._ext(tags.TUPLE, self.encode(list(value)))
        elif kind is set or kind is frozenset:
            if not hashes_are_spread(value):
                raise NotSureError
            members = sorted([self.encode(member) for member in value])
            code = tags.SET if kind is set else tags.FROZENSET
            ext = self._ext(code, tags.array_header(len(members)) + b"".join(members))
        elif kind is Typed and self._parts:
            ext = self._ext(tags.OBJECT, object_header(value.name) + self.encode(value.fields))
        elif kind is Ref and self._parts:
            ext = self._ext(tags.REF, encode_ref(value))
        elif (encode_path := path_encoder(kind)) is not None:
            ext = self._ext(tags.PATH, encode_path(value))
        else:
            entry = self._by_class[kind]
            ext = self._ext(tags.OBJECT, entry.header + self.encode(entry.take_apart(value)))
        self._nesting -= 1
        return ext

    def _ext(self, code: int, payload: bytes) -> ormsgpack.Ext:
        self.nested_bytes += len(payload)
        self._last = len(payload)
        return _Ext(code, payload)
