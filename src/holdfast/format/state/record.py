"""Records: a checkpoint's header, manifest and checksum as one piece of bytes.

    "HF"  kind (0 checkpoint, 1 tombstone)  version (1)
    size of the header (unsigned 32-bit, little-endian)   header (msgpack map, empty fields left out)
    manifest (msgpack)                                    root digest (32)
    checksum (32): SHA-256 of kind, version, header, root    CRC-32 (big-endian) of all the bytes before it

The checksum covers everything that was saved and nothing about where it is stored. The header holds the parent's
checksum, so a tree is a hash chain.
"""

from __future__ import annotations

import hashlib
import zlib
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import ormsgpack

from holdfast.backends.port import Labels, UnreadableBytes
from holdfast.codec.codec import Codec
from holdfast.errors import CorruptError, KeyMissingError, NewerVersionError
from holdfast.format.state import manifest as manifests
from holdfast.format.state.header_check import find_wrong_field
from holdfast.format.state.manifest import Manifest
from holdfast.model import ids, record_version
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.framework import Framework
from holdfast.model.state_migration import FIRST_VERSION

MAGIC = b"HF"
LIVE, TOMBSTONE = b"HF\x00", b"HF\x01"
VERSION = int(record_version.ENVELOPE_VERSION)
SEALED_VERSION = 0x10  # of the envelope around the record of a sealed store: `sealing/envelope.py`
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_CUSTOM = Framework.CUSTOM.value
_VERSION_BYTE = bytes((VERSION,))
_CHECKED_FIRST = b"holdfast record %d %d\0"  # kind and version
_LIVE_CHECKED_FIRST = _CHECKED_FIRST % (LIVE[2], VERSION)
_LIVE_FIRST = LIVE + _VERSION_BYTE
_packb = ormsgpack.packb


class StoredRecord(NamedTuple):
    """A record, read and checked: its header is as it was saved. Its manifest is parsed on access."""

    header: dict[str, Any]
    body: bytes
    root: bytes
    checksum: bytes
    is_tombstone: bool

    @property
    def id(self) -> bytes:
        return self.header["id"]  # type: ignore[no-any-return]  # headers are msgpack: their values have no types

    @property
    def tree(self) -> bytes:
        return self.header.get("tree", self.header["id"])  # type: ignore[no-any-return]  # see id

    @property
    def parent(self) -> bytes | None:
        return self.header.get("parent")

    @property
    def checkpoint_id(self) -> str:
        """The id as people see it."""
        return ids.to_text(self.id)

    @property
    def parent_id(self) -> str | None:
        return None if self.parent is None else ids.to_text(self.parent)

    @property
    def tree_id(self) -> str:
        return ids.to_text(self.tree)

    @property
    def session(self) -> str:
        return self.header["session"]  # type: ignore[no-any-return]  # see id

    @property
    def sequence(self) -> int:
        return self.header["seq"]  # type: ignore[no-any-return]  # see id

    @property
    def state_version(self) -> int:
        return self.header.get("sv", FIRST_VERSION)  # type: ignore[no-any-return]  # see id

    @property
    def depends_on(self) -> bytes | None:
        """The checkpoint whose time to live it extends, with all others that name the same (see rows/hold.py)."""
        return self.header.get("with")

    @property
    def expires_at_us(self) -> int | None:
        ttl = self.header.get("ttl")
        return None if ttl is None else self.header["at"] + round(ttl * 1_000_000)

    def is_expired(self, now_us: int) -> bool:
        """Return whether it may no longer be read: it is a tombstone, or its time to live is over."""
        expires_at = self.expires_at_us
        return self.is_tombstone or (expires_at is not None and now_us >= expires_at)

    def manifest(self) -> Manifest:
        manifest = manifests.unpack(self.body)
        if manifest.root() != self.root:
            raise CorruptError(f"the manifest of {ids.to_text(self.id)} is damaged: run `verify`")
        return manifest

    def labels(self) -> Labels:
        get = self.header.get
        return Labels(
            self.header["agent"],
            get("fw", _CUSTOM),
            get("step", 0),
            get("name"),
            get("parent"),
            self.header["at"],
            get("to"),
        )


def pack(
    codec: Codec, header: dict[str, Any], manifest: Manifest, *, root: bytes | None = None
) -> tuple[bytes, StoredRecord]:
    """Return the bytes of a live record, and the record as it will be read."""
    return pack_body(codec, header, manifest.pack(), root or manifest.root())


def pack_body(codec: Codec, header: dict[str, Any], body: bytes, root: bytes) -> tuple[bytes, StoredRecord]:
    """Do the same as `pack` with a manifest that is packed already."""
    try:
        packed = _packb(header)
    except TypeError:
        packed = _pack_header(codec, header)
    checksum = hashlib.sha256(_LIVE_CHECKED_FIRST + packed + root).digest()
    head = b"".join((_LIVE_FIRST, len(packed).to_bytes(4, "little"), packed, body, root, checksum))
    return head + zlib.crc32(head).to_bytes(4, "big"), StoredRecord(header, body, root, checksum, False)


def pack_tombstone(codec: Codec, stored: StoredRecord, when_us: int, why: str) -> bytes:
    """Return the tombstone of a record: which it was, its checksum, when and why it expired."""
    kept = ("id", "tree", "parent", "session", "agent", "seq", "step", "name", "at")
    header = {name: stored.header[name] for name in kept if name in stored.header}
    header |= {"sum": stored.checksum, "when": when_us, "why": why}
    packed = _pack_header(codec, header)
    return _join_parts(TOMBSTONE, packed, b"", stored.root, _checksum(TOMBSTONE[2], VERSION, packed, stored.root))


def _pack_header(codec: Codec, header: dict[str, Any]) -> bytes:
    try:
        return ormsgpack.packb(header)
    except TypeError:  # a lone surrogate somewhere: the codec can encode it
        return codec.internal.encode(header, "header")


def _join_parts(prefix: bytes, header: bytes, body: bytes, root: bytes, checksum: bytes) -> bytes:
    head = b"".join((prefix, _VERSION_BYTE, len(header).to_bytes(4, "little"), header, body, root, checksum))
    return head + zlib.crc32(head).to_bytes(4, "big")


def with_manifest(data: bytes, manifest: Manifest) -> bytes:
    """Return the record with other positions for the same content: header, root and checksum stay."""
    header_end = 8 + int.from_bytes(data[4:8], "little")
    head = data[:header_end] + manifest.pack() + data[-68:-4]
    return head + zlib.crc32(head).to_bytes(4, "big")


def unpack(codec: Codec, data: bytes, *, expected_id: bytes | None = None) -> StoredRecord:
    """Read a record and check its CRC, its checksum, and that it has the expected id."""
    if data[:2] != MAGIC or len(data) < 76:
        if isinstance(data, UnreadableBytes):
            raise data.error
        raise CorruptError("a record does not begin as one: the store is damaged. Run `verify`")
    kind, version = data[2], data[3]
    if version == SEALED_VERSION:
        raise KeyMissingError(
            f"the record of {_name(expected_id)} is sealed: open the store with its keys (`keys=`, or HOLDFAST_KEYS)"
        )
    if version > VERSION:
        record_version.migrate({}, str(version))  # raises an error that names the version
    if kind > TOMBSTONE[2]:
        raise NewerVersionError(f"the record of {_name(expected_id)} is of a kind that a newer holdfast made. Upgrade")
    if zlib.crc32(memoryview(data)[:-4]) != int.from_bytes(data[-4:], "big"):
        raise CorruptError(f"the record of {_name(expected_id)} is damaged: its CRC does not match. Run `verify`")
    header_end = 8 + int.from_bytes(data[4:8], "little")
    packed, body = data[8:header_end], data[header_end:-68]
    root, checksum = data[-68:-36], data[-36:-4]
    if header_end > len(data) - 68 or _checksum(kind, version, packed, root) != checksum:
        raise CorruptError(
            f"the record of {_name(expected_id)} was changed after it was saved: its checksum does not match. "
            "Run `verify` to see what else is concerned"
        )
    header = _header(codec, packed)
    if version < VERSION:
        header = record_version.migrate(header, str(version))
    wrong = find_wrong_field(header)
    if wrong is not None:
        raise CorruptError(
            f"the record of {_name(expected_id)} was not written by holdfast: its header has no valid {wrong!r:.60}. "
            "Run `verify`"
        )
    if expected_id is not None and header["id"] != expected_id:
        raise CorruptError(f"the record under {_name(expected_id)} is that of {_name(header['id'])}: run `verify`")
    return StoredRecord(header, body, root, checksum, kind == TOMBSTONE[2])


def _header(codec: Codec, packed: bytes) -> dict[str, Any]:
    try:
        header = ormsgpack.unpackb(packed)
    except ValueError:  # it holds an extension: the codec knows them
        header = codec.decode(packed)
    if not isinstance(header, dict):
        raise CorruptError("a record's header is no map: run `verify`")
    return header


def checkpoint(
    codec: Codec, stored: StoredRecord, state: tuple[Any, Any] | None = None, *, state_version: int | None = None
) -> Checkpoint:
    """Return the checkpoint of a record; without a state, as a timeline shows it.

    `state_version` is that of a state that was migrated.
    """
    header = stored.header
    if header.get("kid"):
        raise NewerVersionError(f"{ids.to_text(stored.id)} is encrypted, which this holdfast can't read yet. Upgrade")
    parent = header.get("parent")
    metadata = header.get("meta")
    fields: dict[str, Any] = {
        "checkpoint_id": ids.to_text(stored.id),
        "agent_id": header["agent"],
        "session_id": header["session"],
        "parent_id": ids.to_text(parent) if parent else None,
        "framework": Framework(header.get("fw", Framework.CUSTOM)),
        "schema_version": record_version.SCHEMA_VERSION,
        "step_index": header.get("step", 0),
        "step_name": header.get("name"),
        "metadata": codec.decode(metadata, path="metadata") if metadata else {},
        "checksum": stored.checksum.hex(),
        "created_at": EPOCH + timedelta(microseconds=header["at"]),
        "ttl_seconds": header.get("ttl"),
        "handoff_target": header.get("to"),
        "handoff_schema": header.get("toschema"),
        "tree_id": ids.to_text(stored.tree),
        "sequence": stored.sequence,
        "workspace": header.get("ws"),
        "tasks": codec.decode(header["tasks"], path="tasks") if "tasks" in header else None,
        "app_version": header.get("app"),
        "state_version": state_version or stored.state_version,
        "stored_state_version": stored.state_version,
    }
    if state is not None:
        fields["execution_state"], fields["agent_context"] = state
    return Checkpoint.assemble(fields)


def microseconds(moment: datetime) -> int:
    return (moment - EPOCH) // _MICROSECOND


def _checksum(kind: int, version: int, packed_header: bytes, root: bytes) -> bytes:
    return hashlib.sha256(_CHECKED_FIRST % (kind, version) + packed_header + root).digest()


def _name(id_: bytes | None) -> str:
    return ids.to_text(id_) if id_ else "a checkpoint"
