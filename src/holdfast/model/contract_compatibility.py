"""Compatibility of two schemas: whether a reader accepts every value that a writer may send.

A writer is strict: it sends no field that its schema does not name. A reader is lenient: it ignores
unknown fields and fills in defaults. So a schema means two sets of values, and `find_break` decides
whether the writer's set is within the reader's.

A break carries a *witness*, a value that the writer may send and the reader refuses. The caller
checks it with both validators (`confirm`). Where the rules find neither a proof nor a witness that
holds, the answer is that it can't be told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from holdfast.model.contract_schema import TYPES, Schema, resolve_reference, types_of

MOST_COMPARED = 20_000  # pairs of parts of two schemas
MOST_WITNESSES = 200  # that are tried
MOST_ELEMENTS = 10_000  # of a witness: a person looks at it
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
        shown = f": {self.witness!r:.200} is sent and refused" if self.is_proven else " (can't be told)"
        return f"at {self.path}, {self.reason}{shown}"


Validate = Callable[[Schema, Any], bool]


def find_break(reader: Schema, writer: Schema, *, sends: Validate, reads: Validate) -> SchemaBreak | None:
    """Return why the reader does not accept everything that the writer sends; None if it does.

    `sends` says whether a value may be sent by a schema, `reads` whether it is accepted by one.
    """
    found: SchemaBreak | None = None
    comparison = _Comparison(reader, writer, sends, reads, iter(range(MOST_COMPARED)))
    try:
        for one in islice(comparison.breaks(reader, writer, "$"), MOST_WITNESSES):
            if sends(writer, one.witness) and not reads(reader, one.witness):
                return replace(one, is_proven=True)
            found = found or replace(one, witness=None)
    except _TooLargeError:
        return found or SchemaBreak("$", CANNOT_TELL)
    return found


class _TooLargeError(Exception):
    """Two schemas have too many pairs of parts to be compared."""


class NoValueError(Exception):
    """A schema has no value, or none of a reasonable size."""


class _Comparison:
    """One comparison: the definitions of both sides, and the pairs that are assumed to fit."""

    def __init__(self, reader: Schema, writer: Schema, sends: Validate, reads: Validate, budget: Iterator[int]) -> None:
        self._reader_definitions = reader.get("$defs", {})
        self._writer_definitions = writer.get("$defs", {})
        self._sends = sends
        self._reads = reads
        self._budget = budget  # alternatives within alternatives double the pairs at each level
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
        if next(self._budget, None) is None:
            raise _TooLargeError
        self._assumed[pair] = (reader, writer)  # a schema that refers to itself fits if everything around it does
        if reader is False:
            yield from self._witness(path, "the reader accepts nothing", writer)
        elif writer is True:
            yield from self.breaks(reader, {}, path)
        elif "enum" in writer or "const" in writer:
            for value in self._sent(writer):
                if not self._reads({**reader, "$defs": self._reader_definitions}, value):
                    yield SchemaBreak(path, f"{value!r:.60} is not accepted", value)
        elif "anyOf" in writer or "oneOf" in writer:
            for branch in writer.get("anyOf", writer.get("oneOf", ())):
                yield from self.breaks(reader, branch, path)
        else:
            for type_ in types_of(writer) or ():
                yield from self._of_type(reader, {**writer, "type": type_}, type_, path)

    def _of_type(self, reader: Schema, writer: Schema, type_: str, path: str) -> Iterator[SchemaBreak]:
        if "anyOf" in reader or "oneOf" in reader:
            yield from self._of_branches(reader, writer, type_, path)
            return
        if "enum" in reader or "const" in reader:
            yield from self._of_enum(reader, writer, type_, path)
            return
        accepted = types_of(reader) or ()
        if type_ not in accepted and not (type_ == "integer" and "number" in accepted):
            yield from self._witness(path, f"{type_} is not accepted", writer, other_than="integer")
            return
        match type_:
            case "integer" | "number":
                yield from self._of_numbers(reader, writer, path)
            case "string":
                yield from self._of_lengths(reader, writer, path, "minLength", "maxLength", lambda size: "x" * size)
                if "pattern" in reader and reader["pattern"] != writer.get("pattern"):
                    yield from self._witness(path, f"the pattern {reader['pattern']!r:.60} differs", writer)
            case "array":
                yield from self._of_arrays(reader, writer, path)
            case "object":
                yield from self._of_objects(reader, writer, path)

    # -- unions ------------------------------------------------------------------------------------------------------

    def _of_branches(self, reader: Schema, writer: Schema, type_: str, path: str) -> Iterator[SchemaBreak]:
        """Yield nothing if one branch accepts all; else what breaks in each that might accept some."""
        branches = [
            resolve_reference(one, self._reader_definitions) for one in reader.get("anyOf", reader.get("oneOf", ()))
        ]
        fitting = [one for one in branches if one is True or (one is not False and self._may_accept(one, type_))]
        found: list[SchemaBreak] = []
        accepting = 0
        for branch in fitting:
            definitions = {"$defs": self._reader_definitions}, {"$defs": self._writer_definitions}
            inner = _Comparison(*definitions, self._sends, self._reads, self._budget)
            inner._assumed = dict(self._assumed)
            breaks = list(inner.breaks(branch, writer, path))
            accepting += not breaks
            found += breaks
        if accepting and ("anyOf" in reader or self._are_apart(branches, type_)):
            return
        if accepting:  # oneOf: a value of two branches is refused
            yield from self._witness(path, "more than one of the alternatives may match", writer)
            return
        yield from found
        yield from self._witness(path, "none of the alternatives accepts it", writer)

    def _may_accept(self, branch: Schema, type_: str) -> bool:
        accepted = types_of(resolve_reference(branch, self._reader_definitions)) or ()
        return type_ in accepted or (type_ == "integer" and "number" in accepted)

    def _are_apart(self, branches: Sequence[Any], type_: str) -> bool:
        """Return whether no value of a type is in two branches: by their types, or a constant field."""
        if True in branches:
            return False
        rivals = [one for one in branches if one is not False and self._may_accept(one, type_)]
        if len(rivals) == 1:
            return True
        constants = [_constants(one, self._reader_definitions) for one in rivals]
        shared = set.intersection(*(set(one) for one in constants))
        return any(len({str(one[name]) for one in constants}) == len(rivals) for name in shared)

    def _of_enum(self, reader: Schema, writer: Schema, type_: str, path: str) -> Iterator[SchemaBreak]:
        accepted = list(_finite(reader))
        if type_ == "null" and None in accepted:
            return
        if type_ == "boolean" and {True, False} <= {one for one in accepted if isinstance(one, bool)}:
            return
        for value in self._values(writer, avoid=accepted):
            yield SchemaBreak(path, f"only {', '.join(map(repr, accepted))[:100]} is accepted", value)

    # -- numbers, texts, lists -----------------------------------------------------------------------------------------

    def _of_numbers(self, reader: Schema, writer: Schema, path: str) -> Iterator[SchemaBreak]:
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

    def _of_lengths(
        self, reader: Schema, writer: Schema, path: str, least: str, most: str, make: Callable[[int], Any]
    ) -> Iterator[SchemaBreak]:
        if reader.get(least, 0) > writer.get(least, 0):
            short = int(reader[least]) - 1
            yield SchemaBreak(path, f"a length below {reader[least]} is not accepted", make(max(short, 0)))
        if most in reader and writer.get(most, float("inf")) > reader[most]:
            long = int(reader[most]) + 1
            if long <= MOST_ELEMENTS:
                yield SchemaBreak(path, f"a length above {reader[most]} is not accepted", make(long))
            else:
                yield SchemaBreak(path, f"a length above {reader[most]} is not accepted")

    def _of_arrays(self, reader: Schema, writer: Schema, path: str) -> Iterator[SchemaBreak]:
        def make(length: int) -> Any:
            return self._array(writer, length)

        yield from self._or_cannot_tell(
            path, lambda: list(self._of_lengths(reader, writer, path, "minItems", "maxItems", make))
        )
        if reader.get("uniqueItems") and not writer.get("uniqueItems") and writer.get("maxItems", 2) > 1:
            yield from self._or_cannot_tell(
                path, lambda: [SchemaBreak(path, "equal elements are not accepted", self._array(writer, 2))]
            )
        fixed = max(len(reader.get("prefixItems", ())), len(writer.get("prefixItems", ())))
        longest = writer.get("maxItems", float("inf"))
        for place in range(fixed + 1):
            if place >= longest:
                break
            theirs, ours = _item_at(writer, place), _item_at(reader, place)
            for one in self.breaks(ours, theirs, f"{path}[{'' if place == fixed else place}]"):
                yield from self._around(one, lambda value, at=place: self._array(writer, at + 1, {at: value}))  # type: ignore[misc]

    # -- objects -------------------------------------------------------------------------------------------------------

    def _of_objects(self, reader: Schema, writer: Schema, path: str) -> Iterator[SchemaBreak]:
        mine, theirs = reader.get("properties", {}), writer.get("properties", {})
        for name in reader.get("required", ()):
            if name not in writer.get("required", ()) and not _has_default(mine.get(name)):
                yield from self._or_cannot_tell(
                    path,
                    lambda name=name: [  # type: ignore[misc]
                        SchemaBreak(f"{path}.{name}", "it is required and may be missing", self._object(writer, {}))
                    ],
                )
        rest_mine, rest_theirs = reader.get("additionalProperties", True), writer.get("additionalProperties", False)
        if rest_mine is False:
            rest_mine = True  # a lenient reader ignores what it does not know
        for name in [*theirs, *(name for name in mine if name not in theirs and rest_theirs is not False)]:
            for one in self.breaks(mine.get(name, rest_mine), theirs.get(name, rest_theirs), f"{path}.{name}"):
                yield from self._around(one, lambda value, name=name: self._object(writer, {name: value}))  # type: ignore[misc]
        if rest_theirs is not False:
            for one in self.breaks(rest_mine, rest_theirs, f"{path}.*"):
                yield from self._around(one, lambda value: self._object(writer, {_free_name(mine, theirs): value}))

    # -- witnesses -----------------------------------------------------------------------------------------------------

    def _around(self, inner: SchemaBreak, build: Callable[[Any], Any]) -> Iterator[SchemaBreak]:
        """Yield the break with a witness of the place around it."""
        try:
            yield replace(inner, witness=build(inner.witness))
        except NoValueError:
            yield replace(inner, reason=f"{inner.reason}; {CANNOT_TELL}", witness=None)

    def _or_cannot_tell(self, path: str, build: Callable[[], list[SchemaBreak]]) -> Iterator[SchemaBreak]:
        try:
            yield from build()
        except NoValueError:
            yield SchemaBreak(path, CANNOT_TELL)

    def _witness(self, path: str, reason: str, writer: Any, other_than: str = "") -> Iterator[SchemaBreak]:
        for value in self._values(writer, avoid_integers=other_than == "integer"):
            yield SchemaBreak(path, reason, value)

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
            yield from (smallest + "x" * more for more in range(1, len(avoid) + 2))

    def _sent(self, writer: Schema) -> list[Any]:
        """Return the values of a schema that lists them."""
        schema = {**writer, "$defs": self._writer_definitions}
        return [value for value in _finite(writer) if self._sends(schema, value)]

    def _value(self, given: Any, depth: int) -> Any:
        """Return a small value of a schema of the writer."""
        schema = resolve_reference(given, self._writer_definitions)
        if depth > MOST_NESTED or schema is False:
            raise NoValueError
        if schema is True:
            return None
        if "enum" in schema or "const" in schema:
            sent = self._sent(schema)
            if not sent:
                raise NoValueError
            return sent[0]
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
                return "x" * int(schema.get("minLength", 0))
            case "array":
                return self._array(schema, int(schema.get("minItems", 0)), depth=depth)
            case _:
                return self._object(schema, {}, depth)

    def _array(self, schema: Schema, length: int, given: Mapping[int, Any] | None = None, depth: int = 0) -> list[Any]:
        given = given or {}
        if length > MOST_ELEMENTS:
            raise NoValueError
        wanted = range(max(length, int(schema.get("minItems", 0))))
        return [given[at] if at in given else self._value(_item_at(schema, at), depth + 1) for at in wanted]

    def _object(self, schema: Schema, given: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
        fields = schema.get("properties", {})
        needed = {
            name: fields.get(name, schema.get("additionalProperties", True)) for name in schema.get("required", ())
        }
        made = {name: self._value(one, depth + 1) for name, one in needed.items() if name not in given}
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
    fields = {name: resolve_reference(one, definitions) for name, one in schema.get("properties", {}).items()}
    return {
        name: _finite(one)[0]
        for name, one in fields.items()
        if isinstance(one, Mapping) and ("const" in one or len(one.get("enum", ())) == 1)
    }


def _has_default(schema: Any) -> bool:
    return isinstance(schema, Mapping) and "default" in schema


def _item_at(schema: Schema, place: int) -> Any:
    fixed = schema.get("prefixItems", ())
    return fixed[place] if place < len(fixed) else schema.get("items", True)


def _free_name(*taken: Mapping[str, Any]) -> str:
    name = "other"
    while any(name in one for one in taken):
        name += "_"
    return name


def _limit(schema: Schema, loose: str, strict: str, sign: int) -> tuple[int | float, bool] | None:
    """Return a bound of numbers and whether it is excluded: the narrower of the two that may be given."""
    found = [(schema[name], name == strict) for name in (loose, strict) if name in schema]
    return max(found, key=lambda one: (sign * one[0], one[1])) if found else None


def _is_within(writer: tuple[int | float, bool] | None, reader: tuple[int | float, bool], sign: int) -> bool:
    return writer is not None and (sign * writer[0], writer[1]) >= (sign * reader[0], reader[1])


def _limit_value(schema: Schema, loose: str, strict: str, sign: int, step: float) -> int | float | None:
    limit = _limit(schema, loose, strict, sign)
    return None if limit is None else limit[0] + (sign * step if limit[1] else 0)


def _divides(factor: float, writer: Schema, step: float) -> bool:
    if step == 1 and factor == 1:
        return True
    own = writer.get("multipleOf")
    return own is not None and factor != 0 and (own / factor) == int(own / factor)


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
    for one in candidates:
        if (
            (low is None or one > low[0] or (one == low[0] and not low[1]))
            and (high is None or one < high[0] or (one == high[0] and not high[1]))
            and (not factor or one % factor == 0)
        ):
            return one
    raise NoValueError
