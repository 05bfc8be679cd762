"""The codec: exact, data-only encoding. `decode(encode(x))` equals x, types included."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from holdfast.codec import standard_types
from holdfast.codec.decoder import Decoder, Joined, Resolve
from holdfast.codec.exact_encoder import ExactEncoder, check_items, path_text
from holdfast.codec.fast_encoder import QuickEncoder
from holdfast.codec.limits import Limits
from holdfast.codec.placeholders import RedactedObject, Ref, TypedObject
from holdfast.codec.redacted import RedactedValue
from holdfast.codec.registry import TypeRegistry, default_types
from holdfast.codec.secret_types import Redaction, SecretTypes
from holdfast.codec.structure_check import holds_bin
from holdfast.codec.unknown_types import (
    UNKNOWN,
    LocatedValue,
    OnUnknownType,
    checked_choice,
    parts_of,
    warn_of,
)
from holdfast.codec.unsupported import Refusal
from holdfast.errors import UnsupportedValueError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.codec.redact import Redactor

__all__ = ["Codec", "Limits", "Ref", "TypedObject"]

_DEFAULT_LIMITS = Limits()


class Codec:
    """The encoder and decoder of values. It is stateless: one Codec may serve any number of threads."""

    id: Final = 1  # written into every record

    def __init__(
        self,
        types: TypeRegistry | None = None,
        limits: Limits = _DEFAULT_LIMITS,
        on_unknown_type: OnUnknownType = "raise",
        *,
        warns: bool = True,
        redaction: Redaction | None = None,
    ) -> None:
        """Make a codec. Without `warns`, plain data of unknown types comes back without a warning.

        What the rules of `redaction` meet is left out of every encoding; without rules, secrets are
        refused.
        """
        self.types = default_types if types is None else types
        self._warns = warns
        self.limits = limits
        self.on_unknown_type = checked_choice(on_unknown_type)
        self.redaction = redaction
        self.secrets = SecretTypes(redaction)
        self._rules = redaction if redaction is not None and redaction.walks else None
        # For what holdfast itself has put together out of texts and encoded values.
        self.internal = self if self._rules is None else self.derive(redaction=self._rules.only_types())
        self._surely_allowed = min(limits.max_bytes, limits.max_items)  # bytes: each item takes at least one

    def derive(
        self,
        *,
        types: TypeRegistry | None = None,
        on_unknown_type: OnUnknownType | None = None,
        warns: bool | None = None,
        redaction: Redaction | None = None,
    ) -> Codec:
        """Return a codec that differs from this one in what is given."""
        return Codec(
            self.types if types is None else types,
            self.limits,
            self.on_unknown_type if on_unknown_type is None else on_unknown_type,
            warns=self._warns if warns is None else warns,
            redaction=self.redaction if redaction is None else redaction,
        )

    def redact(self, value: Any, path: str = "") -> Any:
        """Return the value without what rules by path, pattern or function meet: a copy if there is anything.

        Rules by type are applied while it is encoded.
        """
        return value if self._rules is None else self._redactor(self._rules, path).apply(value)

    def _redactor(self, rules: Redaction, path: str) -> Redactor:
        from holdfast.codec.redact import Redactor  # few programs have rules that need it

        return Redactor(self, rules, path)

    def redact_text(self, text: str, path: str) -> str:
        """Return a text that is stored as a text, such as an error's message.

        Of one that a rule meets, return the text of the reference.
        """
        try:
            done = self.redact(text, path)
        except UnsupportedValueError:  # of a rule that refuses: what happened is recorded all the same
            return "<redacted str>"
        return repr(done) if type(done) is RedactedValue else text

    def encode(self, value: Any, path: str = "", *, parts: bool = False) -> bytes:
        """Return the bytes of `value`; raise `UnsupportedValueError`, with a path, if it can't be exact.

        `Ref` and `TypedObject` are accepted only with `parts`, from the layer that puts them there: in a
        user's value they would be read back as something else.
        """
        if type(value) is dict and not value:
            return b"\x80"
        if self._rules is not None and not parts:
            value = self.redact(value, path)
        quick = QuickEncoder(self.types.by_class, self.limits, self.secrets, parts=parts)
        try:
            data = quick.encode(value)
        except Exception:  # of any kind: the exact way finds the cause and its path
            if quick.interruption:
                raise quick.interruption from None
            return self._encode_exactly(value, path, parts=parts)
        if (quick.nested_bytes or len(data) > self._surely_allowed) and self._may_be_too_large(quick, data):
            return self._encode_exactly(value, path, parts=parts)
        return data

    def encode_short(self, value: Any, path: str, most_bytes: int) -> bytes | None:
        """Return what `encode` gives, or None if that is longer than `most_bytes`.

        When the result is longer, only the first of many objects are encoded.
        """
        value = self.redact(value, path)
        quick = QuickEncoder(self.types.by_class, self.limits, self.secrets, most_bytes=most_bytes)
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
        """Return the bytes of each item on its own. Item i has the path `path[start + i]`."""
        if self._rules is not None:
            items = self._redactor(self._rules, path).apply_to_items(items, start)
        quick = QuickEncoder(self.types.by_class, self.limits, self.secrets)
        try:
            quick.prove(items)
            encoded = [quick.pack(item) for item in items]
            if not self._may_be_too_large(quick, max(encoded, key=len, default=b"")):
                return encoded
        except Exception:  # as in `encode`
            if quick.interruption:
                raise quick.interruption from None
        return [self.internal.encode(item, f"{path}[{index}]") for index, item in enumerate(items, start)]

    def encode_joined(self, items: list[Any], path: str = "", *, no_bytes: bool = False) -> bytes:
        """Return what `encode_each` gives, joined; made in one C call if possible.

        This serves to compare with bytes that `encode_each` gave. Nothing is proven about the items
        themselves: exceeded limits and unsupported values may go unnoticed. They are `redacted` already.

        `no_bytes` says that the caller only compares the result with the encoding of an earlier
        list without bytes (see `holds_bytes`). Then a bytearray that ormsgpack takes for bytes
        can't go unnoticed, and the search for one, which takes longer than the encoding, is left
        out.
        """
        data = self._pack(items, no_bytes=no_bytes)
        if data is None:
            return b"".join(self.internal.encode_each(items, path))
        return data[_header_size(len(items)) :]

    def encodes_to(self, items: list[Any], expected: bytes, path: str = "", *, no_bytes: bool = False) -> bool:
        """Return whether `encode_joined` gives these bytes."""
        data = self._pack(items, no_bytes=no_bytes)
        if data is None:
            return b"".join(self.internal.encode_each(items, path)) == expected
        return len(data) == len(expected) + _header_size(len(items)) and data.endswith(expected)

    def _pack(self, items: list[Any], *, no_bytes: bool) -> bytes | None:
        """Return the items as one array; None if only the exact way can tell."""
        quick = QuickEncoder(self.types.by_class, self.limits, self.secrets)
        try:
            data = quick.pack(items)
            if not no_bytes and _may_hold_bin(data):
                quick.prove(items)
        except Exception:  # as in `encode`
            if quick.interruption:
                raise quick.interruption from None
            return None
        return data

    def holds_bytes(self, data: bytes) -> bool:
        """Return whether `data` holds bytes outside objects, tuples and sets (see `encode_joined`)."""
        return holds_bin(data)

    def decode(
        self,
        data: bytes | memoryview,
        resolve: Resolve | None = None,
        path: str | Sequence[str] | None = "value",
    ) -> Any:
        """Return the value that `data` was made from. `resolve(kind, index)` supplies the target of a Ref.

        Raise only CorruptError, UnknownTypeError or NewerVersionError, for any bytes (and the
        holdfast errors that `resolve` raises). With `on_unknown_type="plain"`, warn instead of
        raising UnknownTypeError. The warning begins with `path`, or with one path for each item of
        the value. None: it was given already.
        """
        decoder = self._decoder(resolve)
        value = decoder.decode(data)
        if decoder.unknown and path is not None and self._warns:
            places = [LocatedValue(value, path)] if isinstance(path, str) else map(LocatedValue, value, path)
            warn_of(decoder.unknown, places, self.take_apart, path_text)
        return value

    def decode_joined(self, pieces: Sequence[Joined], path: str = "value", start: int = 0) -> list[Any]:
        """Return the items of all pieces; each is a number of items and their joined encodings.

        For warnings as those of `decode`, item i has the path `path[start + i]`.
        """
        decoder = self._decoder(None)
        values = decoder.decode_joined(pieces)
        if decoder.unknown and self._warns:
            places = [LocatedValue(value, path, (number,)) for number, value in enumerate(values, start)]
            warn_of(decoder.unknown, places, self.take_apart, path_text)
        return values

    def _decoder(self, resolve: Resolve | None) -> Decoder:
        return Decoder(self.types, self.limits, resolve, keep_unknown=self.on_unknown_type == "plain")

    def takes_apart(self, cls: type[Any]) -> bool:
        """Return whether `take_apart` handles objects of this class."""
        if cls is RedactedObject:
            return True
        if self.secrets.rule(cls, self.types.by_class) is not None:
            return False
        return cls in self.types.by_class or cls in UNKNOWN or standard_types.entry_of(cls) is not None

    def take_apart(self, value: Any, path: str = "") -> Any:
        """Return a registered object's name and parts, or its plain data; None for anything else."""
        if type(value) in UNKNOWN:
            return TypedObject(value.type_name, parts_of(value))
        if type(value) is RedactedObject:
            return TypedObject(value.name, value.fields)
        entry = self.types.by_class.get(type(value)) or standard_types.entry_of(type(value))
        if entry is None:
            return None
        try:
            parts = entry.take_apart(value)
        except Refusal as refused:
            raise UnsupportedValueError(path or "value", refused.problem, refused.remedy) from refused.__cause__
        return parts if entry.is_plain else TypedObject(entry.name, parts)

    def rebuild(self, name: str, parts: Any, path: str = "value") -> Any:
        """Return the object of a name and parts that `take_apart` gave. Raises and warns as `decode` does."""
        decoder = self._decoder(None)
        value = decoder.rebuild(name, parts)
        if decoder.unknown and self._warns:
            warn_of(decoder.unknown, [LocatedValue(value, path)], self.take_apart, path_text)
        return value

    def _encode_exactly(self, value: Any, path: str, *, parts: bool = False) -> bytes:
        return ExactEncoder(self.types.by_class, self.limits, self.secrets, path, parts=parts).encode(value)

    def _may_be_too_large(self, quick: QuickEncoder, data: bytes) -> bool:
        limits, size = self.limits, len(data)
        if size > limits.max_bytes or quick.nested_bytes > limits.max_bytes:
            return True
        if size <= limits.max_items:
            return False  # each item takes at least a byte
        try:
            check_items(data, limits)
        except Refusal:
            return True
        return False


def _header_size(count: int) -> int:
    """Return the size of a msgpack array's header."""
    return 1 if count < 16 else 3 if count < 65536 else 5


def _may_hold_bin(data: bytes) -> bool:
    return b"\xc4" in data or b"\xc5" in data or b"\xc6" in data
