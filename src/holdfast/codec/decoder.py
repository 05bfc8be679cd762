"""The decoder: bytes to values. It is safe on any bytes.

ormsgpack does the work and calls the hook here for our Ext codes. The decoder adds three things: it
detects bytes after the value, it preserves exceptions of the hook, and payloads nested in payloads
can't exhaust the stack.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import ormsgpack

from holdfast.codec import ext_codes
from holdfast.codec.builtin_types import DECODERS, has_spread_hashes
from holdfast.codec.class_kinds import make_change_error
from holdfast.codec.structure_check import STRUCTURE_DEPTH, check_structure
from holdfast.codec.unknown_types import UnknownOccurrence, UnknownValue, unknown_value
from holdfast.errors import CorruptError, HoldfastError, NewerVersionError, UnknownTypeError

if TYPE_CHECKING:
    from holdfast.codec.limits import Limits
    from holdfast.codec.registry import TypeRegistry

Resolve = Callable[[int, int], object]
Joined = tuple[int, bytes | memoryview]  # number of values, and their joined encodings

# ormsgpack ignores bytes after a value. So each value is read as the first of two, and the second
# must be this, which no stored data can know.
_END = os.urandom(16)
_END_ENCODED = b"\xc4\x10" + _END

# ormsgpack goes 1024 levels deep by itself. Up to here payloads are decoded without a check of
# their structure; deeper ones are checked once, which keeps the C stack within a few thousand
# levels.
_UNCHECKED_NESTING = 3
_WORTH_A_CALL = 32 * 1024
_SMALL_PAYLOAD = 256  # no payload is nested deeper than it is long

_unpackb = ormsgpack.unpackb


class Decoder:
    """The decoder of one value, for one use."""

    __slots__ = (
        "_checked_from",
        "_error",
        "_keeps_unknown",
        "_limits",
        "_nested_bytes",
        "_nesting",
        "_resolve",
        "_types",
        "unknown",
    )

    def __init__(
        self, types: TypeRegistry, limits: Limits, resolve: Resolve | None, *, keep_unknown: bool = False
    ) -> None:
        self._types = types
        self._keeps_unknown = keep_unknown
        self.unknown: list[UnknownOccurrence] = []  # objects of unknown types, which came back as plain data
        self._limits = limits
        self._resolve = resolve
        self._nesting = 0
        self._nested_bytes = 0
        self._checked_from: int | None = None
        self._error: BaseException | None = None

    def decode(self, data: bytes | memoryview) -> Any:
        return self._run(b"".join((b"\x92", data, _END_ENCODED)), 1, 1)[0]

    def decode_joined(self, pieces: Sequence[Joined]) -> list[Any]:
        """Decode piece by piece, small ones together.

        With a few megabytes at once, most of the time would go into memory outside the processor's
        cache.
        """
        values: list[Any] = []
        count = size = 0
        gathered: list[bytes | memoryview] = []
        for of_piece, data in pieces:
            count += of_piece
            size += len(data)
            gathered.append(data)
            if size >= _WORTH_A_CALL:
                values += self._decode_gathered(count, size, gathered)
                count = size = 0
                gathered = []
        return values + self._decode_gathered(count, size, gathered) if gathered else values

    def _decode_gathered(self, count: int, size: int, gathered: Sequence[bytes | memoryview]) -> list[Any]:
        if not 0 <= count <= size:
            raise CorruptError(f"{size} bytes can't hold {count} values")
        framed = b"".join((b"\xdd", (count + 1).to_bytes(4), *gathered, _END_ENCODED))
        return self._run(framed, count, max(count, 1))

    def _run(self, framed: bytes, count: int, limit_factor: int) -> list[Any]:
        limits = self._limits
        if len(framed) > limits.max_bytes * limit_factor + 32:
            raise CorruptError(f"The data is longer than the {limits.max_bytes} bytes that one value may take")
        if len(framed) > limits.max_items * limit_factor:
            # Each item takes at least a byte, so shorter data needs no count.
            check_structure(framed, STRUCTURE_DEPTH, limits.max_items * limit_factor + 2)
        try:
            values: list[Any] = _unpackb(framed, ext_hook=self._hook)
        except MemoryError:
            raise
        except Exception as error:
            raise self._cause_of(error) from error
        if len(values) != count + 1 or values.pop() != _END:
            raise CorruptError("The data is damaged: it doesn't end where its value ends")
        return values

    def _cause_of(self, error: Exception) -> BaseException:
        """Return the real cause of an error: ormsgpack replaces exceptions of its hook."""
        cause = self._error or error
        if isinstance(cause, HoldfastError) or not isinstance(cause, Exception) or isinstance(cause, MemoryError):
            return cause
        # Without a cause of its own, the hook could not be called at all.
        if isinstance(cause, RecursionError) or str(cause) == "ext_hook failed":
            return CorruptError("The data is nested too deeply for what is left of the call stack")
        return CorruptError(f"The data is damaged and can't be decoded: {cause}")

    def _hook(self, code: int, payload: bytes) -> Any:
        # An exception here is stored, since ormsgpack would drop it.
        try:
            self._nested_bytes += len(payload)
            if self._nested_bytes > self._limits.max_bytes:
                raise CorruptError(f"The data's nested parts are longer than {self._limits.max_bytes} bytes")
            simple = DECODERS.get(code)
            if simple is not None:
                return simple(payload)
            if code == ext_codes.REF:
                return self._resolve_type(payload)
            if not ext_codes.TUPLE <= code <= ext_codes.FROZENSET and code != ext_codes.OBJECT:
                raise NewerVersionError(
                    f"The data holds a value of the kind {code}, which this holdfast doesn't know: "
                    "it was written by a newer holdfast. Upgrade to read it"
                )
            items = self._decode_nested(payload)
            if type(items) is not list:
                raise CorruptError("The data is damaged: a payload holds no array")
            if code == ext_codes.TUPLE:
                return tuple(items)
            if code == ext_codes.OBJECT:
                return self._object(items)
            if code == ext_codes.MAP:
                return _map_of(items)
            return _set_of(items, code)
        except BaseException as error:
            if self._error is None:  # else it is ormsgpack's replacement for an inner error
                self._error = error
            raise

    def _decode_nested(self, payload: bytes) -> Any:
        nesting = self._nesting = self._nesting + 1
        if nesting > self._limits.max_depth:
            raise CorruptError(f"The data is nested more than {self._limits.max_depth} levels deep")
        checks = nesting >= _UNCHECKED_NESTING and self._checked_from is None and len(payload) > _SMALL_PAYLOAD
        if checks:
            # A level of a value is at most three in its encoding: Ext, array, and the parts of an object.
            check_structure(payload, 3 * self._limits.max_depth, self._limits.max_items)
            self._checked_from = nesting
        values = _unpackb(b"".join((b"\x92", payload, _END_ENCODED)), ext_hook=self._hook)
        if values[1] != _END:
            raise CorruptError("The data is damaged: a payload doesn't end where its value ends")
        if checks:
            self._checked_from = None
        self._nesting = nesting - 1
        return values[0]

    def _object(self, items: list[Any]) -> Any:
        if len(items) != 2 or type(items[0]) is not str:
            raise CorruptError("The data is damaged: an object has no name")
        return self.rebuild(items[0], items[1])

    def rebuild(self, name: str, parts: Any) -> Any:
        """Return the object of this type that these parts were taken from."""
        # A user's `decode` may have removed items from its argument before it failed.
        kept = parts.copy() if self._keeps_unknown and (type(parts) is dict or type(parts) is list) else parts
        try:
            return self._types.named(name).rebuild(parts)
        except UnknownTypeError as error:
            return self._unknown(name, kept, error)
        except (HoldfastError, MemoryError, RecursionError):
            raise
        except Exception as error:
            problem = make_change_error(name, f"it can't be rebuilt ({error!r})")
            problem.__cause__ = error
            return self._unknown(name, kept, problem)

    def _unknown(self, name: str, parts: Any, error: UnknownTypeError) -> UnknownValue:
        value = unknown_value(name, parts) if self._keeps_unknown else None
        if value is None:
            raise error
        self.unknown.append(UnknownOccurrence(value, error))
        return value

    def _resolve_type(self, payload: bytes) -> object:
        if self._resolve is None:
            raise CorruptError("The data refers to a part that is stored elsewhere, where none is expected")
        if not 2 <= len(payload) <= 9:
            raise CorruptError("The data is damaged: a reference to a part is malformed")
        return self._resolve(payload[0], int.from_bytes(payload[1:]))


def _map_of(items: list[Any]) -> dict[Any, Any]:
    keys = items[0::2]
    if len(items) % 2 or not has_spread_hashes(keys):
        raise CorruptError("The data is damaged: a dict's keys and values don't match up")
    result = dict(zip(keys, items[1::2], strict=True))
    if len(result) != len(keys):
        raise CorruptError("The data is damaged: a dict holds a key twice")
    return result


def _set_of(items: list[Any], code: int) -> set[Any] | frozenset[Any]:
    if not has_spread_hashes(items):
        raise CorruptError("The data is damaged: a set's members can't be told apart")
    result = set(items)
    if len(result) != len(items):
        raise CorruptError("The data is damaged: a set holds a member twice")
    return result if code == ext_codes.SET else frozenset(items)
