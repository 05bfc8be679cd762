"""Exact, data-only encoding of values: `decode(encode(x))` equals x in value and in every type, or encode refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from holdfast.codec.decoding import Decoder, Joined, Resolve
from holdfast.codec.exact import ExactEncoder, check_items
from holdfast.codec.fast import QuickEncoder, holds_native_traps
from holdfast.codec.limits import Limits
from holdfast.codec.parts import Ref, Typed
from holdfast.codec.refusals import Refused
from holdfast.codec.scan import holds_bin
from holdfast.codec.types import TypeRegistry, default_types
from holdfast.errors import UnsupportedValueError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Codec", "Limits", "Ref", "Typed"]

_DEFAULT_LIMITS = Limits()


class Codec:
    """Encodes and decodes values. Holds no state of its own: one Codec may serve any number of threads."""

    id: Final = 1  # written into every record

    def __init__(self, types: TypeRegistry | None = None, limits: Limits = _DEFAULT_LIMITS) -> None:
        self.types = default_types if types is None else types
        self.limits = limits
        self._surely_allowed = min(limits.max_bytes, limits.max_items)  # bytes: each item takes at least one

    def encode(self, value: Any, path: str = "", *, parts: bool = False) -> bytes:
        """The bytes of `value`. Raises UnsupportedValueError, with the path of the culprit, if it can't be exact.

        `Ref` and `Typed` are taken only with `parts`, from the layer that puts them there: in a user's value they would
        be read back as something else.
        """
        if type(value) is dict and not value:
            return b"\x80"
        quick = QuickEncoder(self.types.by_class, self.limits, parts=parts)
        try:
            data = quick.encode(value)
        except Exception:  # of whatever kind: the exact way finds out what it is and where
            if quick.interruption:
                raise quick.interruption from None
            return self._encode_exactly(value, path, parts=parts)
        if (quick.nested_bytes or len(data) > self._surely_allowed) and self._may_be_too_large(quick, data):
            return self._encode_exactly(value, path, parts=parts)
        return data

    def encode_short(self, value: Any, path: str, most_bytes: int) -> bytes | None:
        """What `encode` gives, if that is not longer; else None, and of many objects only the first ones are encoded."""
        quick = QuickEncoder(self.types.by_class, self.limits, most_bytes=most_bytes)
        try:
            data = quick.encode(value)
        except Exception:  # as in `encode`
            if quick.interruption:
                raise quick.interruption from None
            if quick.room_left < 0:
                return None
            data = self._encode_exactly(value, path)
        else:
            if self._may_be_too_large(quick, data):
                data = self._encode_exactly(value, path)
        return data if len(data) <= most_bytes else None

    def encode_each(self, items: Sequence[Any], path: str = "", start: int = 0) -> list[bytes]:
        """The bytes of each item on its own. Item i has the path `path[start + i]`."""
        quick = QuickEncoder(self.types.by_class, self.limits)
        try:
            quick.prove_items([*items])
            encoded = [quick.pack(item) for item in items]
            if not self._may_be_too_large(quick, max(encoded, key=len, default=b"")):
                return encoded
        except Exception:  # as in `encode`
            if quick.interruption:
                raise quick.interruption from None
        return [self.encode(item, f"{path}[{index}]") for index, item in enumerate(items, start)]

    def encode_joined(self, items: list[Any], path: str = "", *, no_bytes: bool = False) -> bytes:
        """What `encode_each` gives, joined; made in one C call if possible.

        For comparing with bytes that `encode_each` gave: of the items themselves nothing is proven, and neither limits
        nor what can't be stored are sure to be noticed.

        `no_bytes` says that the caller will only compare the result with the encoding of an earlier list that had no
        bytes in it (see `holds_bytes`). Then a bytearray that ormsgpack takes for bytes can't go unnoticed, and the
        search for one, which takes longer than the encoding, is left out.
        """
        data = self._packed(items, no_bytes=no_bytes)
        if data is None:
            return b"".join(self.encode_each(items, path))
        return data[_header_size(len(items)) :]

    def encodes_to(self, items: list[Any], expected: bytes, path: str = "", *, no_bytes: bool = False) -> bool:
        """Whether `encode_joined` gives these bytes."""
        data = self._packed(items, no_bytes=no_bytes)
        if data is None:
            return b"".join(self.encode_each(items, path)) == expected
        return len(data) == len(expected) + _header_size(len(items)) and data.endswith(expected)

    def encodes_to_all(
        self,
        items: list[Any],
        count: int,
        expected: Sequence[bytes],
        each: int,
        path: str = "",
        *,
        no_bytes: bool = False,
    ) -> bool:
        """Whether the first `count` items, `each` at a time, encode to these bytes: `encodes_to` for many at once."""
        if not no_bytes:
            return all(
                self.encodes_to(items[start : min(start + each, count)], bytes_, path)
                for start, bytes_ in zip(range(0, count, each), expected, strict=True)
            )
        quick = QuickEncoder(self.types.by_class, self.limits)
        for start, bytes_ in zip(range(0, count, each), expected, strict=True):
            part = items[start : min(start + each, count)]
            try:
                data = quick.pack(part)
            except Exception:  # as in `encode`
                if quick.interruption:
                    raise quick.interruption from None
                if b"".join(self.encode_each(part, path)) != bytes_:
                    return False
                quick = QuickEncoder(self.types.by_class, self.limits)
            else:
                if not data.endswith(bytes_) or len(data) != len(bytes_) + _header_size(len(part)):
                    return False
        return True

    def _packed(self, items: list[Any], *, no_bytes: bool) -> bytes | None:
        """The items as one array; None if only the exact way can tell."""
        quick = QuickEncoder(self.types.by_class, self.limits)
        try:
            data = quick.pack(items)
        except Exception:  # as in `encode`
            if quick.interruption:
                raise quick.interruption from None
            return None
        return None if not no_bytes and _may_hold_bin(data) and holds_native_traps(items) else data

    def holds_bytes(self, data: bytes) -> bool:
        """Whether the values encoded in `data` hold bytes outside of objects, tuples and sets (see encode_joined)."""
        return holds_bin(data)

    def decode(self, data: bytes | memoryview, resolve: Resolve | None = None) -> Any:
        """The value that `data` was made from. `resolve(kind, index)` supplies what a Ref stands for.

        Raises CorruptError, UnknownTypeError or NewerVersionError, and nothing else, whatever the bytes are (beside
        what `resolve` raises of holdfast's errors).
        """
        return Decoder(self.types, self.limits, resolve).decode(data)

    def decode_joined(self, pieces: Sequence[Joined]) -> list[Any]:
        """The items of all pieces; each is a number of items and their joined encodings."""
        return Decoder(self.types, self.limits, None).decode_joined(pieces)

    def take_apart(self, value: Any, path: str = "") -> Typed | None:
        """A registered object as its name and parts; None for anything else."""
        entry = self.types.by_class.get(type(value))
        if entry is None:
            return None
        try:
            return Typed(entry.name, entry.take_apart(value))
        except Refused as refused:
            raise UnsupportedValueError(path or "value", refused.problem, refused.remedy) from refused.__cause__

    def _encode_exactly(self, value: Any, path: str, *, parts: bool = False) -> bytes:
        return ExactEncoder(self.types.by_class, self.limits, path, parts=parts).encode(value)

    def _may_be_too_large(self, quick: QuickEncoder, data: bytes) -> bool:
        limits, size = self.limits, len(data)
        if size > limits.max_bytes or quick.nested_bytes > limits.max_bytes:
            return True
        if size <= limits.max_items:
            return False  # each item takes at least a byte
        try:
            check_items(data, limits)
        except Refused:
            return True
        return False


def _header_size(count: int) -> int:
    """Of a msgpack array."""
    return 1 if count < 16 else 3 if count < 65536 else 5


def _may_hold_bin(data: bytes) -> bool:
    return b"\xc4" in data or b"\xc5" in data or b"\xc6" in data
