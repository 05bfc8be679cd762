"""The lock file of contracts: the versions that are in use, so that CI needs no store.

It is JSON: `{"draft@1": {schema}, …}`. A version in it must not change; a new one must fit it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.coordination.contract import Contract, accepts
from holdfast.errors import UsageError
from holdfast.format.rows.contract import split_label
from holdfast.model.contract_schema import check_schema, hash_schema

Locked = Mapping[tuple[str, int], Mapping[str, Any]]


class LockProblem(NamedTuple):
    """A version that changed, or that breaks another one."""

    label: str
    message: str


def read_lock(text: str) -> dict[tuple[str, int], Mapping[str, Any]]:
    """Return the schemas of a lock file by name and version; an empty text has none."""
    try:
        given = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the lock file is no JSON: {error}. Restore it from version control") from None
    if not isinstance(given, dict):
        raise UsageError("the lock file is no JSON object of contracts. Restore it from version control")
    found: dict[tuple[str, int], Mapping[str, Any]] = {}
    for label, schema in given.items():
        split = split_label(label)
        if split is None:
            raise UsageError(f"the lock file names a contract {label!r:.60}, which is not NAME@VERSION")
        found[split] = check_schema(schema, label)
    return found


def format_lock(declared: Iterable[Contract[Any]], locked: Locked) -> str:
    """Return the lock file with the declared versions added to those that it has."""
    schemas = {**locked, **{(contract.name, contract.version): contract.schema for contract in declared}}
    labelled = {f"{name}@{version}": schemas[name, version] for name, version in sorted(schemas)}
    return json.dumps(labelled, indent=2) + "\n"


def check_lock(declared: Sequence[Contract[Any]], locked: Locked, mode: str) -> list[LockProblem]:
    """Return what is wrong with the declared versions, beside those of the lock file.

    With the mode backward, a new version must read all earlier ones; with forward, all earlier ones
    must read it; with full, both.
    """
    problems = []
    for contract in declared:
        known = locked.get((contract.name, contract.version))
        if known is not None:
            if hash_schema(known) != contract.hash:
                message = f"its schema has changed since it was locked: declare version {contract.version + 1}"
                problems.append(LockProblem(contract.label, message))
            continue
        earlier = {version: schema for (name, version), schema in locked.items() if name == contract.name}
        earlier |= {other.version: other.schema for other in declared if other.name == contract.name}
        for version in sorted(earlier):
            if version < contract.version:
                problems += _compare(contract, version, earlier[version], mode)
    return problems


def _compare(newer: Contract[Any], version: int, older: Mapping[str, Any], mode: str) -> list[LockProblem]:
    problems = []
    if mode in ("backward", "full") and not newer.upgrades_from(version):
        found = accepts(newer.schema, older)
        if found is not None:
            problems.append(LockProblem(newer.label, f"does not read all of {newer.name}@{version}: {found}"))
    if mode in ("forward", "full"):
        found = accepts(older, newer.schema)
        if found is not None:
            problems.append(LockProblem(newer.label, f"is not read by {newer.name}@{version}: {found}"))
    return problems
