"""The exact encoder: slower, knows every type, and the path of a value that it refuses.

It rewrites a value into one that ormsgpack can only write in one way: plain msgpack types and our
own Ext objects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ormsgpack

from holdfast.codec import ext_codes, standard_types
from holdfast.codec.builtin_types import ENCODERS, encode_int, encode_surrogates, has_spread_hashes, path_encoder
from holdfast.codec.fast_encoder import encode_ref
from holdfast.codec.placeholders import RedactedObject, Ref, TypedObject
from holdfast.codec.redacted import encode_redacted, is_redacted
from holdfast.codec.registry import RegisteredType, object_header
from holdfast.codec.secret_types import refusal_of
from holdfast.codec.structure_check import STRUCTURE_DEPTH, check_structure
from holdfast.codec.unknown_types import KEY_STEP, MEMBER_STEP, UNKNOWN, parts_of
from holdfast.codec.unsupported import Refusal, refusal
from holdfast.errors import CorruptError, UnsupportedValueError

if TYPE_CHECKING:
    from holdfast.codec.limits import Limits
    from holdfast.codec.secret_types import SecretTypes, TypeRule

_UNHASHABLE = frozenset({dict, list})
_AS_THEY_ARE = frozenset({type(None), bool, float, bytes})
_PATH_ENDS = 8  # how many steps of a long path are shown at its start and at its end


class _Step:
    """A step of a path that is neither an index nor a key."""

    def __init__(self, text: str) -> None:
        self.text = text


_KEY = _Step(KEY_STEP)
_MEMBER = _Step(MEMBER_STEP)


class _UnhashableError(Refusal):
    """A key, or a member of a set, whose plain data is a dict or list: read back, it could be neither."""

    def __init__(self, cls: type[Any]) -> None:
        super().__init__(
            f"a {cls.__qualname__} is stored as plain data, which can't be a key or part of one",
            f"Store a list of pairs instead of a dict with such keys, or register the class: "
            f"holdfast.register({cls.__name__})",
        )


class ExactEncoder:
    """The exact encoder of one value, for one use."""

    def __init__(
        self,
        by_class: dict[type[Any], RegisteredType],
        limits: Limits,
        secrets: SecretTypes,
        path: str,
        *,
        parts: bool = False,
    ) -> None:
        self._by_class = by_class
        self._secrets = secrets
        self._parts = parts
        self._limits = limits
        self._path = path
        self._steps: list[Any] = []
        self._open: list[Any] = []
        self._items = 0
        self._nested_bytes = 0
        self._flattened = 0  # number of objects that were rewritten as plain data
        self._hashed = 0  # number of keys and members that are being rewritten, one in another

    def encode(self, value: Any) -> bytes:
        try:
            data = _pack(self._rewrite(value))
            self._check_bytes(len(data))
            if len(data) > self._limits.max_items:
                check_items(data, self._limits)
        except Refusal as refused:
            raise UnsupportedValueError(self._describe_place(), refused.problem, refused.remedy) from refused.__cause__
        except RecursionError:
            # Only if the caller had used up most of the stack already: our own depth is bounded.
            steps = self._steps
            del steps[_PATH_ENDS:]
            raise UnsupportedValueError(
                self._describe_place(),
                "it is nested too deeply for what is left of the call stack",
                "Save from a shallower call",
            ) from None
        except RuntimeError as error:
            raise UnsupportedValueError(
                self._describe_place(),
                f"it changed while it was encoded ({error})",
                "Don't change a state while it is saved",
            ) from error
        return data

    def _rewrite(self, value: Any) -> Any:
        self._items += 1
        kind = type(value)
        if kind in _AS_THEY_ARE:
            return value
        if kind is str:
            return self._rewritten_str(value)
        if kind is int:
            return value if -(1 << 63) <= value < 1 << 64 else self._ext(ext_codes.BIGINT, encode_int(value))
        rule = self._secrets.rule(kind, self._by_class)
        if rule is not None:
            return self._rewritten_secret(rule, value)
        simple = ENCODERS.get(kind)
        if simple is not None:
            return self._ext(simple[0], simple[1](value))
        if is_redacted(value):
            return self._ext(ext_codes.REDACTED, encode_redacted(value))
        encode_path = path_encoder(kind)
        if encode_path is not None:
            return self._ext(ext_codes.PATH, encode_path(value))
        if kind is Ref and self._parts:
            return self._ext(ext_codes.REF, encode_ref(value))
        self._enter(value)
        if kind is list:
            result: Any = self._rewritten_items(value)
        elif kind is dict:
            result = self._rewritten_dict(value)
        elif kind is tuple:
            result = self._ext(ext_codes.TUPLE, _pack(self._rewritten_items(value)))
        elif kind is set or kind is frozenset:
            result = self._rewritten_set(value, ext_codes.SET if kind is set else ext_codes.FROZENSET)
        elif (kind is TypedObject and self._parts) or kind is RedactedObject:
            result = self._ext(ext_codes.OBJECT, object_header(value.name) + _pack(self._rewrite(value.fields)))
        elif kind in UNKNOWN:
            result = self._ext(ext_codes.OBJECT, object_header(value.type_name) + _pack(self._rewrite(parts_of(value))))
        else:
            entry = self._by_class.get(kind) or standard_types.entry_of(kind)
            if entry is None:
                raise refusal(value)
            taken = entry.take_apart(value)
            if entry.is_plain and self._hashed and type(taken) in _UNHASHABLE and kind.__hash__ is not None:
                raise _UnhashableError(kind)
            rewritten = self._rewrite(taken)
            if entry.is_plain:
                self._flattened += 1
                result = rewritten
            else:
                result = self._ext(ext_codes.OBJECT, entry.header + _pack(rewritten))
        self._open.pop()
        return result

    def _rewritten_secret(self, rule: TypeRule, value: Any) -> ormsgpack.Ext:
        if self._hashed:
            raise Refusal(
                f"the redaction rule {rule.label!r} meets it, and a reference can be neither a key nor a set's member",
                "Use another key, or a list",
            )
        if rule.action == "refuse":
            raise refusal_of(rule)
        reference = value if is_redacted(value) else rule.reference(value)
        return self._ext(ext_codes.REDACTED, encode_redacted(reference))

    def _rewritten_str(self, value: str) -> str | ormsgpack.Ext:
        if value.isascii():
            return value
        try:
            value.encode()
        except UnicodeEncodeError:
            return self._ext(ext_codes.SURROGATE, encode_surrogates(value))
        return value

    def _rewritten_items(self, items: list[Any] | tuple[Any, ...]) -> list[Any]:
        steps = self._steps
        result = []
        for index, item in enumerate(items):
            steps.append(index)
            result.append(self._rewrite(item))
            steps.pop()
        return result

    def _rewritten_dict(self, value: dict[Any, Any]) -> Any:
        steps = self._steps
        keys: list[Any] = []
        values: list[Any] = []
        plain = True
        flattened = self._flattened
        for key, item in value.items():
            if type(key) is str:
                keys.append(self._rewritten_str(key))
            else:
                steps.append(_KEY)
                self._hashed += 1
                keys.append(self._rewrite(key))
                self._hashed -= 1
                steps.pop()
            plain = plain and type(keys[-1]) is str
            steps.append(key)
            values.append(self._rewrite(item))
            steps.pop()
        if self._flattened > flattened:
            _refuse_equals([_pack(key) for key in keys], "keys")
        if plain:
            return dict(zip(keys, values, strict=True))
        if not has_spread_hashes(value):
            raise _same_hash()
        flat = [part for pair in zip(keys, values, strict=True) for part in pair]
        return self._ext(ext_codes.MAP, _pack(flat))

    def _rewritten_set(self, value: set[Any] | frozenset[Any], code: int) -> ormsgpack.Ext | list[Any]:
        if not has_spread_hashes(value):
            raise _same_hash()
        before = len(self._steps), len(self._open), self._items, self._hashed
        self._steps.append(_MEMBER)
        flattened = self._flattened
        members = []
        self._hashed += 1
        try:
            for member in value:
                members.append(_pack(self._rewrite(member)))  # noqa: PERF401 - a comprehension would be one frame more
        except _UnhashableError:
            if before[3]:
                raise
            del self._steps[before[0] :]
            del self._open[before[1] :]
            self._items, self._hashed = before[2:]
            return sorted(self._rewritten_items([*value]), key=_pack)
        self._hashed -= 1
        self._steps.pop()
        if self._flattened > flattened:
            _refuse_equals(members, "members")
        members.sort()
        return self._ext(code, ext_codes.array_header(len(members)) + b"".join(members))

    def _ext(self, code: int, payload: bytes) -> ormsgpack.Ext:
        self._nested_bytes += len(payload)
        self._check_bytes(self._nested_bytes)
        return ormsgpack.Ext(code, payload)

    def _enter(self, value: Any) -> None:
        if len(self._open) >= self._limits.max_depth:
            if any(outer is value for outer in self._open):
                raise Refusal("it contains itself", "Break the cycle, for instance by storing an id in its place")
            raise Refusal(
                f"it is nested more than {self._limits.max_depth} levels deep",
                "Store a flatter structure, for instance a list of nodes that name each other by id",
            )
        if self._items > self._limits.max_items:
            raise _too_many_items(self._limits)
        self._open.append(value)

    def _check_bytes(self, size: int) -> None:
        if size > self._limits.max_bytes:
            raise Refusal(f"the value takes more than {self._limits.max_bytes} bytes", "Store less in one value")

    def _describe_place(self) -> str:
        return path_text(self._path, self._steps)


def path_text(start: str, steps: list[Any]) -> str:
    """Return `start` and the steps from it to a part, as a Python programmer would write them."""
    if len(steps) > 2 * _PATH_ENDS:
        steps = [*steps[:_PATH_ENDS], _Step("[...]"), *steps[-_PATH_ENDS:]]
    text = start
    for step in steps:
        if type(step) is str and step.isidentifier():
            text += f".{step}" if text else step
        elif type(step) is _Step:
            text += step.text
        elif type(step) is str and step in (KEY_STEP, MEMBER_STEP):
            text += step
        elif type(step) is str:
            import json  # only a refusal needs it

            text += f"[{json.dumps(step[:60])}]"
        elif type(step) in (int, float, bool, bytes, type(None)) and (type(step) is not int or step.bit_length() < 200):
            text += f"[{step!r:.60}]"
        else:
            text += f"[<{type(step).__name__}>]"
    return text or "value"


def _pack(rewritten: Any) -> bytes:
    return ormsgpack.packb(rewritten, option=ext_codes.PACK_OPTIONS)


def check_items(data: bytes, limits: Limits) -> None:
    """Count the items of an encoded value as the decoder will, so that a stored value can be read."""
    try:
        check_structure(data, STRUCTURE_DEPTH, limits.max_items)
    except CorruptError:
        raise _too_many_items(limits) from None


def _too_many_items(limits: Limits) -> Refusal:
    return Refusal(f"the value has more than {limits.max_items} items", "Store less in one value")


def _same_hash() -> Refusal:
    return Refusal("hundreds of its members have one and the same hash", "Store them in a list")


def _refuse_equals(encoded: list[bytes], members: str) -> None:
    """Raise if two encoded members are equal: objects that differ only by class may be equal as data."""
    if len(set(encoded)) != len(encoded):
        raise Refusal(
            f"two of its {members} are the same once they are plain data, and one of them would be lost",
            "Store them in a list",
        )
