"""Rows of contracts: the schema of each version that was used with the store."""

from __future__ import annotations

from typing import NamedTuple

import ormsgpack

from holdfast.backends.port import STORE, Row, RowKey
from holdfast.format.rows import head
from holdfast.format.rows.fields import unpack_fields

CONTRACT = "contract"
LONGEST_VERSION = 10  # digits


class StoredContract(NamedTuple):
    """A registered version: its schema as canonical JSON, the schema's hash, and when."""

    schema: str
    hash: bytes
    at_us: int


def contract_key(name: str, version: int) -> RowKey:
    return RowKey(CONTRACT, head.session_key(f"{name}@{version}"), STORE)


def split_label(label: str) -> tuple[str, int] | None:
    """Return name and version of a label such as `draft@2`; None if it is none."""
    name, _, version = label.rpartition("@")
    is_number = version.isascii() and version.isdigit() and len(version) <= LONGEST_VERSION
    return (name, int(version)) if name and is_number else None


def pack_contract(key: RowKey, contract: StoredContract) -> bytes:
    return head.protect(key, ormsgpack.packb(list(contract)))


def unpack_contract(key: RowKey, row: Row) -> StoredContract:
    return StoredContract(*unpack_fields(key, row, (str, bytes, int)))
