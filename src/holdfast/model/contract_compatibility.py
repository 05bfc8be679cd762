"""Compatibility of two schemas: whether a reader accepts every value that a writer may send.

A writer is strict: it sends no field that its schema does not name. A reader is lenient: it ignores
unknown fields and fills in defaults. So a schema means two sets of values, and `find_break` decides
whether the writer's set is within the reader's.

A break carries a *witness*, a value that the writer may send and the reader refuses. The caller
checks it with both validators (`confirm`). Where the rules find neither a proof nor a witness that
holds, the answer is that it is undecidable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from holdfast.errors import UsageError
from holdfast.model.contract_schema import (
    TYPES,
    Schema,
    has_default,
    item_at,
    resolve_reference,
    types_of,
    walk_schema,
)

MOST_COMPARED = 20_000  # pairs of parts of two schemas
MOST_CHECKED = 200_000  # values of lists
MOST_MADE = 200_000  # elements and characters of all witnesses
MOST_WITNESSES = 200  # that are tried
MOST_ELEMENTS = 10_000  # of a list or text in a witness: a person looks at it
MOST_NESTED = 40  # of a witness: a schema that requires itself has no values
CANNOT_TELL = "the two schemas can't be compared there"


@dataclass(frozen=True, slots=True)
class SchemaBreak:
    """A place where a reader may refuse what a writer sends.

    `witness` is such a value, whole; `is_proven` says that both validators have confirmed it.
    """

    path: str
    reason: str
    witness: Any = None
    is_proven: bool = False

    def __str__(self) -> str:
        shown = f": {self.witness!r:.200} is sent and refused" if self.is_proven else " (undecidable)"
        return f"at {self.path}, {self.reason}{shown}"


Check = Callable[[Any], bool]
Validator = Callable[[Schema], Check]


def find_break(reader: Schema, writer: Schema, *, sends: Validator, reads: Validator) -> SchemaBreak | None:
    """Return why the reader does not accept everything that the writer sends; None if it does.

    `sends` makes of a schema the check whether a value may be sent, `reads` whether it is accepted.
    """
    found: SchemaBreak | None = None
    is_sent, is_read = sends(writer), reads(reader)
    comparison = _Comparison(reader, writer, _Work(sends, reads))
    try:
        for schema_break in islice(comparison.breaks(reader, writer, "$"), MOST_WITNESSES):
            if _is_example(schema_break.witness, is_sent, is_read):
                return replace(schema_break, is_proven=True)
            found = found or replace(schema_break, witness=None)
    except (_TooLargeError, RecursionError):
        return found or SchemaBreak("$", CANNOT_TELL)
    return found


def _is_example(value: Any, is_sent: Check, is_read: Check) -> bool:
    try:
        return is_sent(value) and not is_read(value)
    except UsageError:  # nothing that is nested so deeply is sent
        return False


class _TooLargeError(Exception):
    """Two schemas have too many pairs of parts to be compared, or too many values."""


class NoValueError(Exception):
    """A schema has no value, or none of a reasonable size."""


class _Work:
    """What the parts of a comparison share: the validators of parts, and how much may still be done."""

    def __init__(self, sends: Validator, reads: Validator) -> None:
        self._sends = sends
        self._reads = reads
        self._checks: dict[tuple[int, bool], tuple[Check, Schema]] = {}  # by the part's id, which the value keeps alive
        self._left = {"pairs": MOST_COMPARED, "values": MOST_CHECKED, "size": MOST_MADE}

    def spend(self, budget: str, amount: int = 1) -> None:
        """Count work of a kind: alternatives within alternatives double it at each level."""
        self._left[budget] -= amount
        if self._left[budget] < 0:
            raise _TooLargeError

    def is_sent(self, part: Schema, definitions: Schema, value: Any) -> bool:
        return self._check(part, definitions, value, is_writer=True)

    def is_read(self, part: Schema, definitions: Schema, value: Any) -> bool:
        return self._check(part, definitions, value, is_writer=False)

    def _check(self, part: Schema, definitions: Schema, value: Any, *, is_writer: bool) -> bool:
        self.spend("values")
        place = id(part), is_writer
        if place not in self._checks:
            has_reference = any(isinstance(item, Mapping) and "$ref" in item for _, item, _ in walk_schema(part))
            whole = {**part, "$defs": definitions} if has_reference else part
            self._checks[place] = (self._sends if is_writer else self._reads)(whole), part
        return self._checks[place][0](value)


class _Comparison:
    """One comparison: the definitions of both sides, and the pairs that are assumed to fit."""

    def __init__(self, reader: Schema, writer: Schema, work: _Work) -> None:
        self._reader_definitions = reader.get("$defs", {})
        self._writer_definitions = writer.get("$defs", {})
        self._work = work
        self._assumed: dict[tuple[int, int], Any] = {}  # by their ids; the value keeps both alive

    def breaks(self, reader: Any, writer: Any, path: str) -> Iterator[SchemaBreak]:
        """Yield what breaks at a place; `witness` is the value at that place, and grows on the way up."""
        reader, writer = (
            resolve_reference(reader, self._reader_definitions),
            resolve_reference(writer, self._writer_definitions),
        )
        pair = (id(reader), id(writer))
        if pair in self._assumed or reader is True or writer is False or not _constrains(reader):
            return
        self._work.spend("pairs")
        self._assumed[pair] = (reader, writer)  # a schema that refers to itself fits if everything around it does
        if reader is False:
            yield from self._find_example(path, "the reader accepts nothing", writer)
        elif writer is True:
            yield from self.breaks(reader, {}, path)
        elif "enum" in writer or "const" in writer:
            for value in self._iterate_sent(writer):
                if not self._work.is_read(reader, self._reader_definitions, value):
                    yield SchemaBreak(path, f"{value!r:.60} is not accepted", value)
        elif "anyOf" in writer or "oneOf" in writer:
            for branch in writer.get("anyOf", writer.get("oneOf", ())):
                yield from self.breaks(reader, branch, path)
        else:
            for type_ in types_of(writer) or ():
                yield from self._compare_type(reader, {**writer, "type": type_}, type_, path)

    def _compare_type(self, reader: Schema, writer: Schema, type_: str, path: str) -> Iterator[SchemaBreak]:
        if "anyOf" in reader or "oneOf" in reader:
            yield from self._compare_branches(reader, writer, type_, path)
            return
        if "enum" in reader or "const" in reader:
            yield from self._compare_enum(reader, writer, type_, path)
            return
        accepted = types_of(reader) or ()
        if type_ not in accepted and not (type_ == "integer" and "number" in accepted):
            yield from self._find_example(path, f"{type_} is not accepted", writer, other_than="integer")
            return
        match type_:
            case "integer" | "number":
                yield from self._compare_numbers(reader, writer, path)
            case "string":
                yield from self._compare_lengths(reader, writer, path, "minLength", "maxLength", self._text)
                if "pattern" in reader and reader["pattern"] != writer.get("pattern"):
                    yield from self._find_example(path, f"the pattern {reader['pattern']!r:.60} differs", writer)
            case "array":
                yield from self._compare_arrays(reader, writer, path)
            case "object":
                yield from self._compare_objects(reader, writer, path)

    # -- unions ------------------------------------------------------------------------------------------------------

    def _compare_branches(self, reader: Schema, writer: Schema, type_: str, path: str) -> Iterator[SchemaBreak]:
        """Yield nothing if one branch accepts all; else what breaks in each that might accept some."""
        branches = [
            resolve_reference(item, self._reader_definitions) for item in reader.get("anyOf", reader.get("oneOf", ()))
        ]
        fitting = [item for item in branches if item is True or (item is not False and self._may_accept(item, type_))]
        found: list[SchemaBreak] = []
        accepting = 0
        for branch in fitting:
            definitions = {"$defs": self._reader_definitions}, {"$defs": self._writer_definitions}
            inner = _Comparison(*definitions, self._work)
            inner._assumed = dict(self._assumed)
            breaks = list(islice(inner.breaks(branch, writer, path), MOST_WITNESSES))
            accepting += not breaks
            found += breaks
        if accepting and ("anyOf" in reader or self._are_apart(branches, type_)):
            return
        if accepting:  # oneOf: a value of two branches is refused
            yield from self._find_example(path, "more than one of the alternatives may match", writer)
            return
        yield from found
        yield from self._find_example(path, "none of the alternatives accepts it", writer)

    def _may_accept(self, branch: Schema, type_: str) -> bool:
        accepted = types_of(resolve_reference(branch, self._reader_definitions)) or ()
        return type_ in accepted or (type_ == "integer" and "number" in accepted)

    def _are_apart(self, branches: Sequence[Any], type_: str) -> bool:
        """Return whether no value of a type is in two branches: by their types, or a constant field."""
        if True in branches:
            return False
        rivals = [branch for branch in branches if branch is not False and self._may_accept(branch, type_)]
        if len(rivals) == 1:
            return True
        constants = [_constants(rival, self._reader_definitions) for rival in rivals]
        shared = set.intersection(*(set(constant) for constant in constants))
        return any(len({str(constant[name]) for constant in constants}) == len(rivals) for name in shared)

    def _compare_enum(self, reader: Schema, writer: Schema, type_: str, path: str) -> Iterator[SchemaBreak]:
        accepted = list(_finite(reader))
        if type_ == "null" and None in accepted:
            return
        if type_ == "boolean" and {True, False} <= {item for item in accepted if isinstance(item, bool)}:
            return
        yield from self._find_example(
            path,
            f"only {', '.join(map(repr, accepted))[:100]} is accepted",
            writer,
            accepted,
        )

    # -- numbers, texts, lists -----------------------------------------------------------------------------------------

    def _compare_numbers(self, reader: Schema, writer: Schema, path: str) -> Iterator[SchemaBreak]:
        step: int | float = 1 if writer.get("type") == "integer" else 0.5
        for low, strict, sign in (("minimum", "exclusiveMinimum", 1), ("maximum", "exclusiveMaximum", -1)):
            limit = _limit(reader, low, strict, sign)
            if limit is None or _is_within(_limit(writer, low, strict, sign), limit, sign):
                continue
            bound, is_open = limit
            beyond = [bound, bound - sign * step, bound - sign * 1, _limit_value(writer, low, strict, sign, step)]
            reason = f"{'below' if sign == 1 else 'above'} {bound} is not accepted"
            for value in beyond:
                if value is not None:
                    yield SchemaBreak(path, reason, int(value) if step == 1 and not isinstance(value, int) else value)
            if is_open:
                yield SchemaBreak(path, f"{bound} itself is not accepted", bound)
        factor = reader.get("multipleOf")
        if factor is not None and not _divides(factor, writer, step):
            for value in (factor + step, 1, step, *self._values(writer)):
                yield SchemaBreak(path, f"only multiples of {factor} are accepted", value)

    def _compare_lengths(
        self, reader: Schema, writer: Schema, path: str, least: str, most: str, make: Callable[[int], Any]
    ) -> Iterator[SchemaBreak]:
        wrong = []
        if reader.get(least, 0) > writer.get(least, 0):
            wrong.append((int(writer.get(least, 0)), f"a length below {reader[least]} is not accepted"))
        if most in reader and writer.get(most, float("inf")) > reader[most]:
            wrong.append((int(reader[most]) + 1, f"a length above {reader[most]} is not accepted"))
        for length, reason in wrong:
            try:
                yield SchemaBreak(path, reason, make(length))
            except NoValueError:
                yield SchemaBreak(path, reason)

    def _compare_arrays(self, reader: Schema, writer: Schema, path: str) -> Iterator[SchemaBreak]:
        yield from self._compare_lengths(
            reader, writer, path, "minItems", "maxItems", lambda length: self._array(writer, length)
        )
        if reader.get("uniqueItems") and not writer.get("uniqueItems") and writer.get("maxItems", 2) > 1:
            yield from self._build_or_give_up(
                path, lambda: [SchemaBreak(path, "equal elements are not accepted", self._array(writer, 2))]
            )
        fixed = max(len(reader.get("prefixItems", ())), len(writer.get("prefixItems", ())))
        longest = writer.get("maxItems", float("inf"))
        for place in range(fixed + 1):
            if place >= longest:
                break
            theirs, ours = item_at(writer, place), item_at(reader, place)
            for item in self.breaks(ours, theirs, f"{path}[{'' if place == fixed else place}]"):
                yield from self._wrap_break(
                    item,
                    lambda value, at=place: self._array(writer, at + 1, {at: value}),  # type: ignore[misc]  # a default
                )

    # -- objects -------------------------------------------------------------------------------------------------------

    def _compare_objects(self, reader: Schema, writer: Schema, path: str) -> Iterator[SchemaBreak]:
        mine, theirs = reader.get("properties", {}), writer.get("properties", {})
        for name in reader.get("required", ()):
            if name not in writer.get("required", ()) and not has_default(mine.get(name)):
                yield from self._build_or_give_up(
                    path,
                    lambda name=name: [  # type: ignore[misc]  # a default
                        SchemaBreak(f"{path}.{name}", "it is required and may be missing", self._object(writer, {}))
                    ],
                )
        rest_mine = reader.get("additionalProperties", True)
        rest_theirs = writer.get("additionalProperties", "properties" not in writer)  # strict once it names fields
        if rest_mine is False:
            rest_mine = True  # a lenient reader ignores what it does not know
        for name in [*theirs, *(name for name in mine if name not in theirs and rest_theirs is not False)]:
            for item in self.breaks(mine.get(name, rest_mine), theirs.get(name, rest_theirs), f"{path}.{name}"):
                yield from self._wrap_break(
                    item,
                    lambda value, name=name: self._object(writer, {name: value}),  # type: ignore[misc]  # a default
                )
        if rest_theirs is not False:
            for item in self.breaks(rest_mine, rest_theirs, f"{path}.*"):
                yield from self._wrap_break(item, lambda value: self._object(writer, {_free_name(mine, theirs): value}))

    # -- witnesses -----------------------------------------------------------------------------------------------------

    def _wrap_break(self, inner: SchemaBreak, build: Callable[[Any], Any]) -> Iterator[SchemaBreak]:
        """Yield the break with a witness of the place around it."""
        try:
            yield replace(inner, witness=build(inner.witness))
        except NoValueError:
            yield replace(inner, reason=f"{inner.reason}; {CANNOT_TELL}", witness=None)

    def _build_or_give_up(self, path: str, build: Callable[[], list[SchemaBreak]]) -> Iterator[SchemaBreak]:
        try:
            yield from build()
        except NoValueError:
            yield SchemaBreak(path, CANNOT_TELL)

    def _find_example(
        self, path: str, reason: str, writer: Any, avoid: Sequence[Any] = (), *, other_than: str = ""
    ) -> Iterator[SchemaBreak]:
        """Yield a break with each of some values.

        It has none if none is found: there may be one all the same.
        """
        is_found = False
        for value in self._values(writer, avoid, avoid_integers=other_than == "integer"):
            is_found = True
            yield SchemaBreak(path, reason, value)
        if not is_found:
            yield SchemaBreak(path, reason)

    def _values(self, writer: Any, avoid: Sequence[Any] = (), *, avoid_integers: bool = False) -> Iterator[Any]:
        """Yield some values of the writer's schema: the smallest, and others of the same type."""
        try:
            smallest = self._value(writer, 0)
        except NoValueError:
            return
        if avoid_integers and isinstance(smallest, int) and not isinstance(smallest, bool):
            yield smallest + 0.5
        yield smallest
        if isinstance(smallest, bool):
            yield not smallest
        elif isinstance(smallest, int | float):
            yield from (smallest + step for step in range(1, len(avoid) + 2))
        elif isinstance(smallest, str):
            for more in range(1, len(avoid) + 2):
                self._work.spend("size", len(smallest) + more)
                yield smallest + "x" * more

    def _iterate_sent(self, writer: Schema) -> Iterator[Any]:
        """Yield the values of a schema that lists them."""
        return (value for value in _finite(writer) if self._work.is_sent(writer, self._writer_definitions, value))

    def _value(self, given: Any, depth: int) -> Any:
        """Return a small value of a schema of the writer."""
        schema = resolve_reference(given, self._writer_definitions)
        self._work.spend("size")
        if depth > MOST_NESTED or schema is False:
            raise NoValueError
        if schema is True:
            return None
        if "enum" in schema or "const" in schema:
            for value in self._iterate_sent(schema):
                return value
            raise NoValueError
        for branch in schema.get("anyOf", schema.get("oneOf", ())):
            try:
                return self._value(branch, depth + 1)
            except NoValueError:
                continue
        if "anyOf" in schema or "oneOf" in schema:
            raise NoValueError
        types = sorted(types_of(schema) or (), key=TYPES.index)
        if not types:
            raise NoValueError
        match types[0]:
            case "null":
                return None
            case "boolean":
                return False
            case "integer" | "number":
                return _small_number(schema, is_whole=types[0] == "integer")
            case "string":
                return self._text(int(schema.get("minLength", 0)))
            case "array":
                return self._array(schema, int(schema.get("minItems", 0)), depth=depth)
            case _:
                return self._object(schema, {}, depth)

    def _text(self, length: int) -> str:
        if length > MOST_ELEMENTS:
            raise NoValueError
        self._work.spend("size", length)
        return "x" * length

    def _array(self, schema: Schema, length: int, given: Mapping[int, Any] | None = None, depth: int = 0) -> list[Any]:
        given = given or {}
        wanted = range(max(length, int(schema.get("minItems", 0))))
        if len(wanted) > MOST_ELEMENTS:
            raise NoValueError
        return [given[at] if at in given else self._value(item_at(schema, at), depth + 1) for at in wanted]

    def _object(self, schema: Schema, given: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
        fields = schema.get("properties", {})
        needed = {
            name: fields.get(name, schema.get("additionalProperties", True)) for name in schema.get("required", ())
        }
        made = {name: self._value(value, depth + 1) for name, value in needed.items() if name not in given}
        return made | dict(given)


# -- pieces of schemas -------------------------------------------------------------------------------------------------


def _constrains(schema: Any) -> bool:
    """Return whether a schema refuses anything at all."""
    return not isinstance(schema, Mapping) or bool(
        set(schema) - {"title", "description", "default", "examples", "deprecated", "$schema", "$defs", "format"}
    )


def _finite(schema: Schema) -> Sequence[Any]:
    return [schema["const"]] if "const" in schema else list(schema["enum"])


def _constants(schema: Schema, definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that a schema of objects requires and fixes to one value."""
    fields = {name: resolve_reference(value, definitions) for name, value in schema.get("properties", {}).items()}
    return {
        name: _finite(value)[0]
        for name, value in fields.items()
        if isinstance(value, Mapping) and ("const" in value or len(value.get("enum", ())) == 1)
    }


def _free_name(*taken: Mapping[str, Any]) -> str:
    name = "other"
    while any(name in item for item in taken):
        name += "_"
    return name


def _limit(schema: Schema, loose: str, strict: str, sign: int) -> tuple[int | float, bool] | None:
    """Return a bound of numbers and whether it is excluded: the narrower of the two that may be given."""
    found = [(schema[name], name == strict) for name in (loose, strict) if name in schema]
    return max(found, key=lambda item: (sign * item[0], item[1])) if found else None


def _is_within(writer: tuple[int | float, bool] | None, reader: tuple[int | float, bool], sign: int) -> bool:
    return writer is not None and (sign * writer[0], writer[1]) >= (sign * reader[0], reader[1])


def _limit_value(schema: Schema, loose: str, strict: str, sign: int, step: float) -> int | float | None:
    limit = _limit(schema, loose, strict, sign)
    return None if limit is None else limit[0] + (sign * step if limit[1] else 0)


def _divides(factor: float, writer: Schema, step: float) -> bool:
    if step == 1 and factor == 1:
        return True
    own = writer.get("multipleOf")
    ratio = 0.5 if own is None else own / factor
    return math.isfinite(ratio) and ratio == int(ratio)


def _small_number(schema: Schema, *, is_whole: bool) -> int | float:
    step: int | float = 1 if is_whole else 0.5
    factor = schema.get("multipleOf")
    candidates: list[int | float] = [0, 1, -1]
    for loose, strict, sign in (("minimum", "exclusiveMinimum", 1), ("maximum", "exclusiveMaximum", -1)):
        value = _limit_value(schema, loose, strict, sign, step)
        if value is not None:
            rounded = (
                int(value) + (sign if is_whole and int(value) != value and sign * value > 0 else 0)
                if is_whole
                else value
            )
            candidates += [rounded, *([factor * (rounded // factor + (sign == 1))] if factor else [])]
    low = _limit(schema, "minimum", "exclusiveMinimum", 1)
    high = _limit(schema, "maximum", "exclusiveMaximum", -1)
    for candidate in candidates:
        if (
            (low is None or candidate > low[0] or (candidate == low[0] and not low[1]))
            and (high is None or candidate < high[0] or (candidate == high[0] and not high[1]))
            and (not factor or candidate % factor == 0)
        ):
            return candidate
    raise NoValueError
