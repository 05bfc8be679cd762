"""Contracts: named, versioned schemas of the values that one agent hands to another.

`contract(name, version, source)` declares one. The source is a pydantic model, a dataclass, a
`TypedDict`, a `msgspec.Struct` or a JSON Schema. A version never changes once it is used: another
schema under the same name and version is a conflict.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar, cast

from holdfast.coordination.contract_validator import (
    ContractProblem,
    find_problems,
    reader_check,
    sender_check,
)
from holdfast.coordination.plain_value import plain_value
from holdfast.errors import ContractConflictError, ContractError, NewerContractError, UsageError
from holdfast.model.contract_compatibility import SchemaBreak, find_break
from holdfast.model.contract_schema import (
    Schema,
    canonical_text,
    check_schema,
    fill_defaults,
    find_differences,
    hash_schema,
    resolve_reference,
    walk_schema,
)

T = TypeVar("T")
Upgrade = Callable[[Any], Any]
LONGEST_NAME = 100
LARGEST_VERSION = 2**31


class Contract(Generic[T]):
    """A declared version of a contract; `schema` is its JSON Schema, `type` the class, if it has one."""

    def __init__(self, name: str, version: int, schema: Schema, type_: type[T] | None) -> None:
        self.name = name
        self.version = version
        self.schema = schema
        self.type = type_
        self.hash = hash_schema(schema)
        self._text = canonical_text(schema)
        self._upgrades: dict[int, Upgrade] = {}
        self._adapter: Any = None
        self._root = resolve_reference(schema, schema.get("$defs", {}))  # a class that contains itself is a reference

    @property
    def label(self) -> str:
        """The name and version, as handoffs and messages carry them: `draft@2`."""
        return f"{self.name}@{self.version}"

    def __repr__(self) -> str:
        return f"<contract {self.label}>"

    def upgrade(self, *, from_version: int) -> Callable[[Upgrade], Upgrade]:
        """Decorate a function that turns a value of an older version into one of this version.

        The function gets plain data and returns plain data, which is then validated.
        """
        if not isinstance(from_version, int) or not 0 < from_version < self.version:
            raise UsageError(
                f"from_version is {from_version!r:.60}: an upgrade to {self.label} begins at a version from 1 to "
                f"{self.version - 1}"
            )

        def register(function: Upgrade) -> Upgrade:
            self._upgrades[from_version] = function
            return function

        return register

    def upgrades_from(self, version: int) -> bool:
        """Return whether upgrades lead from an older version to this one."""
        while version < self.version:
            step = _next_step(self.name, version, self)
            if step is None:
                return False
            version = step[0]
        return True

    # -- sending -------------------------------------------------------------------------------------------------------

    def encode(self, value: Any) -> Any:
        """Return a value as plain data, checked as a sender's: nothing missing, nothing unknown."""
        plain = plain_value(value)
        problems = find_problems(self._text, plain, is_strict=True)
        if not problems and self.type is not None:
            problems = self._find_class_problems(plain)
        if problems:
            raise ContractError(
                f"the value is not a {self.label}: {_list(problems)}. Nothing was sent. Correct the value, or declare "
                "a new version of the contract",
                tuple(problems),
            )
        return plain

    def project(self, state: Any) -> Any:
        """Return the fields of a state that the contract names; the others stay where they are."""
        fields = self._root.get("properties")
        plain = plain_value(state)
        if fields is None or not isinstance(plain, Mapping):
            return plain
        return {name: plain[name] for name in fields if name in plain}

    # -- reading -------------------------------------------------------------------------------------------------------

    def decode(self, plain: Any, *, version: int | None = None, is_proven: bool = False) -> tuple[T, dict[str, Any]]:
        """Return a value that was sent, as the class, and the fields that this version does not know.

        An older version is upgraded. A newer one is read only if its compatibility is proven.
        """
        sent = self.version if version is None else version
        if sent > self.version and not is_proven:
            raise NewerContractError(
                f"the value is a {self.name}@{sent}, and this program knows {self.label}: whether it can be read is "
                "not proven. It stays open for a newer program"
            )
        upgraded = self._upgrade(plain, sent)
        problems = find_problems(self._text, upgraded, is_strict=False)
        if problems:
            raise ContractError(
                f"the value that was sent as {self.name}@{sent} is not a {self.label}: {_list(problems)}. It stays "
                "open. Register an upgrade, or correct the sender",
                tuple(problems),
            )
        fields = self._root.get("properties")
        if not isinstance(upgraded, Mapping) or fields is None:
            return self._construct(upgraded), {}
        known = {name: value for name, value in upgraded.items() if name in fields}
        extra = {name: value for name, value in upgraded.items() if name not in fields}
        if self._root.get("additionalProperties", False) is not False:
            known, extra = dict(upgraded), {}
        return self._construct(known), extra

    def _upgrade(self, plain: Any, version: int) -> Any:
        while version < self.version:
            step = _next_step(self.name, version, self)
            if step is None:
                return plain  # the lenient reader may accept it as it is
            target, function = step
            try:
                plain = function(plain)
            except Exception as error:
                raise ContractError(
                    f"the upgrade of {self.name!r} from version {version} to {target} failed: {error!r:.300}. The "
                    "value stays open; correct the function",
                    (),
                ) from error
            version = target
        return plain

    def _construct(self, plain: Any) -> T:
        if self.type is None:
            return cast("T", fill_defaults(self.schema, plain, self.schema.get("$defs", {})))
        try:
            return cast("T", self._type_adapter().validate_python(plain))
        except ValueError as error:
            raise ContractError(
                f"the value is a {self.label} by its schema, and {self.type.__name__} refuses it: {error!s:.300}",
                _problems_of_class(error),
            ) from error

    def _find_class_problems(self, plain: Any) -> list[ContractProblem]:
        try:
            self._type_adapter().validate_python(plain)
        except ValueError as error:
            return list(_problems_of_class(error))
        return []

    def _type_adapter(self) -> Any:
        if self._adapter is None:
            self._adapter = _adapter_of(self.type)
        return self._adapter


class Contracts:
    """The contracts that a program has declared."""

    def __init__(self) -> None:
        self._declared: dict[tuple[str, int], Contract[Any]] = {}
        self._lock = threading.Lock()

    def declare(self, name: str, version: int, source: Any) -> Contract[Any]:
        _check_name(name, version)
        schema, type_ = schema_of(source, name)
        if type_ is None and "pattern" in str(schema) and _has_pattern(schema):
            raise UsageError(
                f"the schema of contract {name!r:.60} has a 'pattern', which only a class checks: declare the contract "
                "by a pydantic model"
            )
        made: Contract[Any] = Contract(name, version, schema, type_)
        with self._lock:
            known = self._declared.setdefault((name, version), made)
            if known.hash == made.hash and known.type is not type_:  # a cell of a notebook has run again
                made._upgrades |= known._upgrades
                self._declared[name, version] = known = made
        if known.hash != made.hash:
            differences = find_differences(known.schema, made.schema)
            raise ContractConflictError(
                f"contract {made.label} is declared twice with different schemas ({'; '.join(differences)}): a version "
                f"never changes. Declare version {version + 1}",
                differences,
            )
        return known

    def find(self, name: str, version: int) -> Contract[Any] | None:
        return self._declared.get((name, version))

    def list_versions(self, name: str) -> list[Contract[Any]]:
        return sorted((item for item in self._declared.values() if item.name == name), key=lambda item: item.version)

    def __iter__(self) -> Any:
        return iter(sorted(self._declared.values(), key=lambda item: (item.name, item.version)))


DECLARED = Contracts()


def contract(name: str, version: int, source: type[T] | Schema) -> Contract[T]:
    """Declare a version of a contract, for this program."""
    return DECLARED.declare(name, version, source)


def accepts(reader: Contract[Any] | Schema, writer: Contract[Any] | Schema) -> SchemaBreak | None:
    """Return why a reader does not accept everything that a writer sends; None if it does."""
    mine = reader.schema if isinstance(reader, Contract) else check_schema(reader, "reader")
    theirs = writer.schema if isinstance(writer, Contract) else check_schema(writer, "writer")
    return find_break(mine, theirs, sends=sender_check, reads=reader_check)


def schema_of(source: Any, name: str) -> tuple[dict[str, Any], type | None]:
    """Return the JSON Schema of a class or of a schema that is given as such, and the class."""
    if isinstance(source, Mapping):
        return check_schema(source, name), None
    if not isinstance(source, type) and not hasattr(source, "__annotations__"):
        raise UsageError(
            f"contract {name!r:.60} is declared by a {type(source).__name__}: give a pydantic model, a dataclass, a "
            "TypedDict, a msgspec.Struct or a JSON Schema"
        )
    try:
        schema = _adapter_of(source).json_schema()
    except (TypeError, RuntimeError) as error:
        raise UsageError(f"contract {name!r:.60} can't be declared by {source!r:.80}: {error!s:.300}") from error
    return check_schema(schema, name), source


class _StructAdapter:
    """What a contract needs of `pydantic.TypeAdapter`, for structs of msgspec."""

    def __init__(self, type_: Any) -> None:
        import msgspec

        self._type = type_
        self._msgspec = msgspec

    def json_schema(self) -> Any:
        return self._msgspec.json.schema(self._type)

    def validate_python(self, value: Any) -> Any:
        return self._msgspec.convert(value, self._type)


def _adapter_of(type_: Any) -> Any:
    if hasattr(type_, "__struct_fields__"):
        return _StructAdapter(type_)
    try:
        from pydantic import TypeAdapter
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "pydantic is not installed, which contracts of classes need: pip install 'holdfast[contracts]'",
            name=error.name,
        ) from error
    try:
        return TypeAdapter(type_)
    except (TypeError, RuntimeError) as error:  # those of pydantic derive from these
        raise UsageError(f"a contract can't be declared by {type_!r:.80}: {error!s:.300}") from error


def _next_step(name: str, version: int, newest: Contract[Any]) -> tuple[int, Upgrade] | None:
    """Return the upgrade that leads furthest from a version, up to that of the reader."""
    known = [item for item in (*DECLARED.list_versions(name), newest) if version < item.version <= newest.version]
    for contract in sorted(known, key=lambda item: -item.version):
        if version in contract._upgrades:
            return contract.version, contract._upgrades[version]
    return None


def _problems_of_class(error: ValueError) -> tuple[ContractProblem, ...]:
    errors = getattr(error, "errors", None)
    if not callable(errors):
        return (ContractProblem("$", str(error)[:200], ""),)
    found: Iterable[Any] = errors(include_url=False)
    return tuple(
        ContractProblem("$" + "".join(f".{item}" for item in each["loc"]), each["msg"], f"{each.get('input')!r:.80}")
        for each in found
    )


def _check_name(name: Any, version: Any) -> None:
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or "@" in name or not name.isprintable():
        raise UsageError(
            f"the name of a contract is {name!r:.60}: it must be a text without '@' of at most "
            f"{LONGEST_NAME} characters"
        )
    if isinstance(version, bool) or not isinstance(version, int) or not 0 < version < LARGEST_VERSION:
        raise UsageError(
            f"the version of contract {name!r:.60} is {version!r:.60}: it must be a whole number from 1 on"
        )


def _has_pattern(schema: Schema) -> bool:
    return any(isinstance(part, Mapping) and "pattern" in part for _, part, _ in walk_schema(schema))


def _list(problems: Iterable[ContractProblem]) -> str:
    return "; ".join(map(str, problems))
