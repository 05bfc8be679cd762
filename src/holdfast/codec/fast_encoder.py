"""The fast encoder: one C call, after a proof that it will be exact.

ormsgpack packs a few types that are not its own natively and so loses them: bytearray and
memoryview become bytes, and Ext and Fragment objects of the caller would be written raw. The proof
checks the types of everything that ormsgpack would pack by itself. Everything that it hands to
`_default` is proven there, payload by payload.

Any doubt raises; the caller then uses the exact encoder (`exact_encoder.py`), which gives the same
bytes or names the problem.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ormsgpack

from holdfast.codec import ext_codes, standard_types
from holdfast.codec.builtin_types import ATOMS, ENCODERS, has_spread_hashes, path_encoder
from holdfast.codec.placeholders import RedactedObject, Ref, TypedObject
from holdfast.codec.redacted import encode_redacted, is_redacted
from holdfast.codec.registry import RegisteredType, object_header
from holdfast.codec.unknown_types import UNKNOWN, parts_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from holdfast.codec.limits import Limits
    from holdfast.codec.secret_types import SecretTypes, TypeRule

# The fast encoder accepts only a few nested payloads: it does not know how deep in its value a
# payload is, so it divides the allowed depth evenly among them.
_MAX_NESTING = 7

_NATIVE_TRAPS = frozenset({bytearray, memoryview, ormsgpack.Ext, ormsgpack.Fragment})

# Up to here a loop over the values of a container is faster than a check of all at once.
_FEW = 8

_packb = ormsgpack.packb
_get = dict.get  # without `__missing__`, which may admit a class
_Ext = ormsgpack.Ext


class NotSureError(Exception):
    """The fast encoder can't prove that it would be exact."""


def encode_ref(ref: Ref) -> bytes:
    return bytes((ref.kind,)) + ref.index.to_bytes(max(1, (ref.index.bit_length() + 7) // 8))


class QuickEncoder:
    """The fast encoder of one value (or the items of one list), for one use.

    ormsgpack replaces any exception of its hook by a TypeError. A KeyboardInterrupt is stored in
    `interruption`, for the caller to raise.
    """

    __slots__ = (
        "_by_class",
        "_hashed",
        "_items_left",
        "_last",
        "_nesting",
        "_parts",
        "_room",
        "_rules",
        "_secrets",
        "interruption",
        "nested_bytes",
        "room_left",
    )

    def __init__(
        self,
        by_class: dict[type[Any], RegisteredType],
        limits: Limits,
        secrets: SecretTypes,
        *,
        parts: bool = False,
        most_bytes: int | None = None,
    ) -> None:
        self._by_class = by_class
        self._secrets = secrets
        self._rules: dict[type[Any], TypeRule | None] = {}  # of the classes met so far
        self._hashed = 0  # sets that are being encoded, one in another
        self._parts = parts
        self._items_left = limits.max_items
        self._nesting = 0
        self._room = (limits.max_depth - _MAX_NESTING) // (_MAX_NESTING + 1)
        self.nested_bytes = 0
        self._last = 0  # the length of the last payload
        # Counts top-level payloads, which are all part of the result: below zero, it is longer than
        # requested.
        self.room_left = limits.max_bytes if most_bytes is None else most_bytes
        self.interruption: BaseException | None = None

    def encode(self, value: Any) -> bytes:
        kind = type(value)
        if kind is dict:
            self.prove(value.values())
        elif kind is list:
            self.prove(value)
        elif kind in _NATIVE_TRAPS:
            raise NotSureError
        return _packb(value, self._default, ext_codes.PACK_OPTIONS)

    def pack(self, value: Any) -> bytes:
        """Encode without proof."""
        return _packb(value, self._default, ext_codes.PACK_OPTIONS)

    def prove(self, values: Collection[Any]) -> None:
        """Raise `NotSureError` unless ormsgpack packs these values, the contents of one container, exactly."""
        level: list[Collection[Any]] = [values]
        room, left = self._room, self._items_left
        while level:
            room -= 1
            if room < 0:
                raise NotSureError
            inside: list[Collection[Any]] = []
            for container in level:
                # This also stops a small value that unfolds to a huge one: it holds the same list many times.
                size = len(container)
                left -= size
                if left < 0:
                    raise NotSureError
                # In C: most containers without nested ones hold atoms only. The setup costs more than a few values.
                if size > _FEW and ATOMS.issuperset(map(type, container)):
                    continue
                for value in container:
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

    def _default(self, value: Any) -> Any:
        kind = type(value)
        try:
            entry = _get(self._by_class, kind)
            if kind not in self._rules:
                self._rules[kind] = self._secrets.rule(kind, self._by_class)
            if (rule := self._rules[kind]) is not None:
                ext = self._encode_secret(rule, value)
            elif entry is not None and not entry.is_plain:
                ext = self._encode_object(entry, value)
            else:
                ext = self._encode_other(kind, value)
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

    def _encode_object(self, entry: RegisteredType, value: Any) -> ormsgpack.Ext:
        self._enter()
        ext = self._ext(ext_codes.OBJECT, entry.header + self.encode(entry.take_apart(value)))
        self._nesting -= 1
        return ext

    def _encode_secret(self, rule: TypeRule, value: Any) -> ormsgpack.Ext:
        if self._hashed or rule.action == "refuse":
            raise NotSureError  # the exact encoder says why
        reference = value if is_redacted(value) else rule.reference(value)
        return self._ext(ext_codes.REDACTED, encode_redacted(reference))

    def _encode_other(self, kind: type[Any], value: Any) -> Any:
        """Return an Ext, or a stored atom, for a value that is no object of a registered class."""
        simple = ENCODERS.get(kind)
        if simple is not None:
            code, encode = simple
            return self._ext(code, encode(value))
        self._enter()
        if kind is tuple:
            code, payload = ext_codes.TUPLE, self.encode(list(value))
        elif kind is set or kind is frozenset:
            if not has_spread_hashes(value):
                raise NotSureError
            self._hashed += 1
            members = sorted([self.encode(member) for member in value])
            self._hashed -= 1
            if len(set(members)) < len(members):
                raise NotSureError
            code = ext_codes.SET if kind is set else ext_codes.FROZENSET
            payload = ext_codes.array_header(len(members)) + b"".join(members)
        elif kind is TypedObject and self._parts:
            code, payload = ext_codes.OBJECT, object_header(value.name) + self.encode(value.fields)
        elif kind is Ref and self._parts:
            code, payload = ext_codes.REF, encode_ref(value)
        elif kind is RedactedObject:
            code, payload = ext_codes.OBJECT, object_header(value.name) + self.encode(value.fields)
        elif kind in UNKNOWN:
            code, payload = ext_codes.OBJECT, object_header(value.type_name) + self.encode(parts_of(value))
        elif (encode_path := path_encoder(kind)) is not None:
            code, payload = ext_codes.PATH, encode_path(value)
        else:
            if is_redacted(value):  # in a codec without rules
                self._nesting -= 1
                return self._ext(ext_codes.REDACTED, encode_redacted(value))
            entry = self._by_class.get(kind) or standard_types.entry_of(kind)
            if entry is None:
                raise NotSureError
            self._nesting -= 1
            return self._encode_plain(entry, value) if entry.is_plain else self._encode_object(entry, value)
        self._nesting -= 1
        return self._ext(code, payload)

    def _encode_plain(self, entry: RegisteredType, value: Any) -> Any:
        plain = entry.take_apart(value)
        if type(plain) not in ATOMS:  # which ormsgpack packs as they are
            raise NotSureError
        self._last = 0
        return plain

    def _enter(self) -> None:
        if self._nesting >= _MAX_NESTING or self._room < 1:
            raise NotSureError
        self._nesting += 1

    def _ext(self, code: int, payload: bytes) -> ormsgpack.Ext:
        self.nested_bytes += len(payload)
        self._last = len(payload)
        return _Ext(code, payload)
