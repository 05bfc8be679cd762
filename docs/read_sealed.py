"""Reads one checkpoint out of a sealed SQLite store without holdfast, as docs/format.md describes it. It only reads.

python read_sealed.py STORE.db KEYFILE.toml CHECKPOINT_ID      (needs cryptography, ormsgpack and zstandard)
"""

# A script to read and to copy: no package, no annotations.
# ruff: noqa: ANN001, ANN201, ANN204, PT018, T203

import base64
import hmac
import pprint
import sqlite3
import sys
import tomllib
import zlib

import ormsgpack
import read_store
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM


def crc_is_right(data, start=0):
    return zlib.crc32(data[:-4], start) == int.from_bytes(data[-4:], "big")


def row_content(space, key, value):
    """The content of a row: it ends with a CRC-32 of space, key and content."""
    assert crc_is_right(value, zlib.crc32(key, zlib.crc32(space))), "a row is damaged"
    return value[:-4]


def derive(root, purpose):
    """HKDF-Expand with SHA-256, one block."""
    return hmac.digest(root, b"holdfast " + purpose + b"\x01", "sha256")


def number(value, size):
    return value.to_bytes(size, "big")


class SealedStore:
    """A connection that answers the queries of read_store.py: what it returns is opened."""

    def __init__(self, path, keys):
        """`keys` are those of the key file: names to 32 bytes."""
        self.store = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        packed = row_content(b"keys", b"store", self.value(b"store"))
        version, store_id, wrapped = ormsgpack.unpackb(packed)[:3]
        assert version == 1, "not a sealed store of version 1"
        name, data = next((name, data) for name, data in wrapped if name in keys)
        context = {"store": store_id.hex(), "tenant": bytes(16).hex(), "purpose": "store key"}
        parts = [name, *(part for item in sorted(context.items()) for part in item)]
        bound_to = b"holdfast ring 1\0" + b"".join(number(len(p.encode()), 2) + p.encode() for p in parts)
        secrets = AESGCM(keys[name]).decrypt(data[:12], data[12:], bound_to)
        _, _, addresses, self.roots, *more = ormsgpack.unpackb(secrets, option=ormsgpack.OPT_NON_STR_KEYS)
        self.blob_keys = {epoch: derive(root, b"blobs") for epoch, root in self.roots.items()}
        self.blob_keys |= more[0] if more else {}  # of epochs whose root was destroyed
        self.addresses = derive(addresses, b"addresses")
        self.scope = b"holdfast seal 1\0" + store_id + bytes(16)

    def value(self, key):
        query = "SELECT value FROM row WHERE space = 'keys' AND key = ? AND tree = x''"
        found = self.store.execute(query, (key,)).fetchone()
        assert found, "the row of a key is missing"
        return found[0]

    def key(self, kid):
        """The key of that id: of an epoch itself, or of a tree."""
        if kid[:4] == bytes(4):
            return derive(self.roots[int.from_bytes(kid[4:], "big")], b"rows")
        _, tree, epoch, wrapped = ormsgpack.unpackb(row_content(b"keys", kid, self.value(kid)))[:4]
        bound_to = self.scope + b"K\x01" + kid + number(epoch, 4) + number(len(tree), 1) + tree
        return AESGCM(derive(self.roots[epoch], b"tree keys")).decrypt(wrapped[:12], wrapped[12:], bound_to)

    def opened(self, letter, place, data, head, hash_=None):
        """The clear name and the content of sealed bytes; `head` has what stands before the suite."""
        assert crc_is_right(data), "sealed bytes are damaged"
        at = len(head)
        assert data[:at] == head and data[at] == 1, "not sealed with suite 1"
        kid, nonce = data[at + 1 : at + 9], data[at + 9 : at + 21]
        if hash_ is None:
            key = self.key(kid)
        else:
            key = hmac.digest(self.blob_keys[int.from_bytes(kid[4:], "big")], hash_, "sha256")
        clear = head if letter == b"R" else b""
        try:
            plain = AESGCM(key).decrypt(nonce, data[at + 21 : -4], self.scope + letter + b"\x01" + kid + clear + place)
        except InvalidTag:
            raise SystemExit("these bytes were not written in this place by a holder of the key") from None
        size, start, shift = 0, 0, 0
        while True:
            size |= (plain[start] & 127) << shift
            start, shift = start + 1, shift + 7
            if plain[start - 1] < 128:
                break
        return plain[start : start + size], plain[start + size : plain.rindex(b"\x01")]

    def execute(self, query, parameters):
        if "FROM record" in query:
            return self.records(*parameters)
        if "FROM run" in query:
            return self.segments(self.store.execute(query, parameters))
        if "FROM blob" in query:
            return self.blobs(*parameters)
        return iter(())

    def records(self, id_):
        query = "SELECT data, sequence, session.id FROM record JOIN session ON session.n = session WHERE record.id = ?"
        rows = []
        for data, sequence, session in self.store.execute(query, (id_,)):
            place = number(len(id_), 1) + id_ + number(len(session), 1) + session + number(sequence, 8)
            _, content = self.opened(b"R", place, data, b"HF" + data[2:3] + b"\x10")
            assert content[2:3] == data[2:3], "the kind of a record was changed"
            rows.append((content,))
        return Answer(rows)

    def segments(self, found):
        for k, length, data in found:
            log, first = k >> 28, k & (1 << 28) - 1
            place = number(log, 8) + number(first, 8) + number(length, 8)
            yield k, length, self.opened(b"U", place, data, b"\x10")[1]

    def blobs(self, hash_):
        address = hmac.digest(self.addresses, hash_, "sha256")
        rows = self.store.execute("SELECT data FROM blob WHERE hash = ?", (address,))
        return Answer([(self.opened(b"B", address, data, b"\x10", hash_)[1],) for (data,) in rows])


class Answer(list):
    def fetchone(self):
        return self[0] if self else None


def read_keys(path):
    with open(path, "rb") as file:  # noqa: PTH123 - one call less to copy
        return {name: base64.b64decode(text) for name, text in tomllib.load(file).items()}


def restore(path, keys, checkpoint_id):
    """(header, execution_state, agent_context) of a checkpoint, checked."""
    return read_store.restore_from(SealedStore(path, keys), checkpoint_id)


if __name__ == "__main__":
    pprint.pprint(restore(sys.argv[1], read_keys(sys.argv[2]), sys.argv[3]), sort_dicts=False)
