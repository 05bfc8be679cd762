"""contract: register the versions that are used, list them, find the schema of one.

A version is immutable. The first use registers its schema; the same name and version with another
schema is a conflict.
"""

from __future__ import annotations

import json

from holdfast.backends.port import ABSENT, Commit, CommitConflict, RowWrite
from holdfast.errors import ContractConflictError, CorruptError
from holdfast.format.rows import contract as rows
from holdfast.format.rows import head
from holdfast.format.rows.contract import StoredContract
from holdfast.model.contract_list import RegisteredContract
from holdfast.model.contract_schema import Schema, check_schema, find_differences, hash_schema
from holdfast.model.moment import moment_of
from holdfast.operations.context import StoreContext

PAGE = 500


async def register(ctx: StoreContext, name: str, version: int, schema: str, hash_: bytes) -> None:
    """Register a version of a contract, unless it is registered already."""
    known = await find(ctx, name, version)
    if known is None:
        key = rows.contract_key(name, version)
        made = StoredContract(schema, hash_, ctx.now_us())
        try:
            await ctx.backend.commit(Commit(tree=key.tree, rows=[RowWrite(key, rows.pack_contract(key, made), ABSENT)]))
            ctx.contracts[name, version] = made
        except CommitConflict:  # another program registers it at this moment
            known = await find(ctx, name, version)
    if known is not None and known.hash != hash_:
        differences = _find_differences(known.schema, schema)
        where = f" ({'; '.join(differences)})" if differences else ""
        raise ContractConflictError(
            f"contract {name}@{version} is registered in this store with another schema{where}: a version never "
            f"changes. `holdfast contract show {name}@{version}` prints the registered one. Declare version "
            f"{version + 1}",
            differences,
        )


def _find_differences(registered: str, declared: str) -> tuple[str, ...]:
    try:
        return find_differences(json.loads(registered), json.loads(declared))
    except (ValueError, RecursionError):  # the registered one is damaged
        return ()


async def find(ctx: StoreContext, name: str, version: int) -> StoredContract | None:
    """Return a registered version, which is read once by a client: it never changes."""
    known = ctx.contracts.get((name, version))
    if known is None:
        key = rows.contract_key(name, version)
        [row] = await ctx.backend.rows([key])
        if row is None:
            return None
        known = ctx.contracts[name, version] = rows.unpack_contract(key, row)
    return known


def read_schema(stored: StoredContract, name: str, version: int) -> Schema:
    """Return a registered schema as a value; raise `CorruptError` if it is none."""
    try:
        schema = json.loads(stored.schema)
    except (ValueError, RecursionError) as error:
        raise CorruptError(
            f"the schema of contract {name}@{version} in the store is no JSON, or nested too deeply: it was not "
            "written by holdfast"
        ) from error
    return check_schema(schema, name)


async def list_contracts(ctx: StoreContext) -> list[RegisteredContract]:
    """Return all registered versions, by name and version."""
    found: list[RegisteredContract] = []
    after: bytes | None = None
    while page := await ctx.backend.scan(rows.CONTRACT, after=after, limit=PAGE):
        for key, row in page:
            label = rows.split_label(head.session_name(key.key))
            if label is None:
                raise CorruptError(f"the store has a contract with the name {key.key!r:.60}, which is none")
            found.append(_make_registered(*label, rows.unpack_contract(key, row)))
        after = page[-1][0].key
    return sorted(found, key=lambda contract: (contract.name, contract.version))


def _make_registered(name: str, version: int, stored: StoredContract) -> RegisteredContract:
    schema = read_schema(stored, name, version)
    if hash_schema(schema) != stored.hash:
        raise CorruptError(
            f"the schema of contract {name}@{version} differs from its hash: it was changed in the store"
        )
    at = moment_of(stored.at_us)
    return RegisteredContract(name=name, version=version, schema=schema, hash=stored.hash.hex(), registered_at=at)
