"""Reads one checkpoint out of a SQLite store without holdfast, as docs/format.md describes it. It only reads.

python read_store.py STORE.db CHECKPOINT_ID        (needs ormsgpack and zstandard)
"""

# A script to read and to copy: no package, no annotations.
# ruff: noqa: ANN001, ANN201, ANN202, DTZ001, PT018, T203

import hashlib
import pprint
import sqlite3
import struct
import sys
import uuid
import zlib
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

import ormsgpack
import zstandard


def zone(data):
    if not data:
        return None
    if data[0] == 3:
        return ZoneInfo(data[1:].decode())
    offset = timedelta(microseconds=struct.unpack_from(">q", data, 1)[0]) if data[0] else timedelta(0)
    return timezone(offset, data[9:].decode("utf-8", "surrogatepass")) if data[0] == 2 else timezone(offset)


def reader(resolve):
    """A function from the bytes of one encoded value to the value; `resolve` gives what a REF stands for."""

    def ext(code, data):
        if code in (4, 5, 6, 7, 15, 17):  # the payloads that are msgpack themselves
            items = read(data)
            if code == 5:
                return dict(zip(items[::2], items[1::2], strict=True))
            return Fraction(*items) if code == 15 else {6: set, 7: frozenset}.get(code, tuple)(items)
        return {
            1: lambda: int.from_bytes(data, "big", signed=True),
            2: lambda: data.decode("utf-8", "surrogatepass"),
            3: lambda: bytearray(data),
            8: lambda: datetime(*(n := struct.unpack_from(">HBBBBBIB", data))[:7], zone(data[12:]), fold=n[7]),
            9: lambda: date(*struct.unpack(">HBB", data)),
            10: lambda: time(*(n := struct.unpack_from(">BBBIB", data))[:4], zone(data[8:]), fold=n[4]),
            11: lambda: timedelta(*struct.unpack(">iii", data)),
            12: lambda: Decimal(data.decode()),
            13: lambda: uuid.UUID(bytes=bytes(data[:16])),
            14: lambda: complex(*struct.unpack(">dd", data)),
            16: lambda: data[1:].decode("utf-8", "surrogatepass"),
            18: lambda: resolve(data[0], int.from_bytes(data[1:], "big")),
            19: lambda: f"<redacted {read(data)[4].rpartition('.')[2]}>",
        }[code]()

    def read(data):
        return ormsgpack.unpackb(data, ext_hook=ext)

    return read


def frame(data):
    return data[1:] if data[0] == 0 else zstandard.ZstdDecompressor().decompress(data[1:])


def check(content, size, digest, link=b""):
    """The content, if its digest is right; of a list, with the first link: a chain over blocks of 16,384 bytes."""
    left = content
    while link and len(left) >= 16384:
        link, left = hashlib.sha256(link + left[:16384]).digest(), left[16384:]
    assert len(content) == size and hashlib.sha256(link + left).digest() == digest, "the content is damaged"
    return content


def span(store, log, first, end):
    """The elements [first, end) of a log, one after the other."""
    found, base = b"", log << 28
    query = "SELECT k, length, data FROM run WHERE k >= ? AND k < ? AND k + length > ? ORDER BY k"
    for k, length, data in store.execute(query, (base, base + end, base + first)):
        content, start = frame(data), k - base
        ends = [0]
        for size in struct.unpack_from(f"<{length}I", content):
            ends.append(ends[-1] + size)
        payload = content[4 * length :]
        found += payload[ends[max(first - start, 0)] : ends[min(end - start, length)]]
    return found


def varints(column):
    numbers, number, shift = [], 0, 0
    for byte in column:
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            numbers.append(number)
            number = shift = 0
    return numbers


def unzigzag(number):
    return -(number + 1) // 2 if number & 1 else number // 2


def grave(store, id_):
    """What is left of an expired checkpoint that was collected: its session, number, parent, when and why it went."""
    for four in (id_[8:12], bytes(4)):
        trees = set()
        query = "SELECT key, tree, value FROM row WHERE space = 'graves' AND key >= ? AND key < ? ORDER BY key"
        for key, tree, value in store.execute(query, (four + id_, four + b"\xff" * 17)):
            if tree in trees:
                continue
            trees.add(tree)
            assert zlib.crc32(b"graves" + key + value[:-4]) == int.from_bytes(value[-4:], "big"), "a row is damaged"
            version, of_tree, sessions, reasons, *columns = ormsgpack.unpackb(frame(value[:-4]))
            assert (version, of_tree) == (1, tree), "not a pack of version 1"
            moments, in_session, sequences, parents, whens, whys = map(varints, columns[:6])
            elsewhere, *bytes_of_ids, noises, _ = columns[6:]
            moment = when = others = 0
            found, last, ids = None, {}, []
            for at, middle in enumerate(zip(*bytes_of_ids, strict=True)):
                moment += moments[at]
                ids.append(moment.to_bytes(6, "big") + bytes(middle) + noises[4 * at : 4 * at + 4])
            for at, buried in enumerate(ids):
                session = in_session[at]
                last[session] = last.get(session, 0) + unzigzag(sequences[at])
                when += unzigzag(whens[at])
                parent = ids[at - unzigzag(parents[at] - 2)] if parents[at] > 1 else None
                if parents[at] == 1:
                    parent, others = elsewhere[others : others + 16], others + 16
                if buried == id_:
                    found = (
                        sessions[session].decode("utf-8", "surrogatepass"),
                        last[session],
                        parent,
                        when,
                        reasons[whys[at]],
                    )
            if found:
                return found
    return None


def restore(path, checkpoint_id):
    """(header, execution_state, agent_context) of a checkpoint, checked."""
    store = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    found = restore_from(store, checkpoint_id)
    store.close()
    return found


def restore_from(store, checkpoint_id):
    """The same, of a connection, or of what answers these queries as one does (`read_sealed.py`)."""
    id_ = uuid.UUID(checkpoint_id).bytes
    [data] = store.execute("SELECT data FROM record WHERE id = ?", (id_,)).fetchone() or [None]
    assert data is not None, f"there is no such record; its grave: {grave(store, id_)}"
    assert data[:2] == b"HF" and data[3] == 1, "not a record of version 1"
    assert data[2] == 0, "it has expired: this is its tombstone"
    assert zlib.crc32(data[:-4]) == int.from_bytes(data[-4:], "big"), "the record is damaged"
    end = 8 + int.from_bytes(data[4:8], "little")
    packed, body, root, checksum = data[8:end], data[end:-68], data[-68:-36], data[-36:-4]
    assert hashlib.sha256(b"holdfast record 0 1\0" + packed + root).digest() == checksum, "the header was changed"

    (size, digest, content, place, _), lists, blobs = ormsgpack.unpackb(body)
    covered = b"holdfast root 1\0" + struct.pack("<QQQ", size, len(lists), len(blobs)) + digest
    covered += b"".join(struct.pack("<QQ", entry[1], entry[2]) + entry[3] for entry in lists)
    assert hashlib.sha256(covered + b"".join(hash_ for hash_, _ in blobs)).digest() == root, "the manifest was changed"

    def resolve(kind, index):
        if kind:
            hash_, size = blobs[index]
            [data] = store.execute("SELECT data FROM blob WHERE hash = ?", (hash_,)).fetchone()
            content = check(frame(data), size, hash_)
            return content.decode("utf-8", "surrogatepass") if kind == 1 else content
        _, length, size, digest, _, spans, *_ = lists[index]
        payload = b"".join(span(store, *spans[i : i + 3]) for i in range(0, len(spans), 3))
        return read(b"\xdd" + length.to_bytes(4, "big") + check(payload, size, digest, bytes(32)))

    read = reader(resolve)
    skeleton = span(store, *place) if content is None else content
    execution_state, agent_context = read(check(skeleton, size, digest))
    header = read(packed)
    for name in ("meta", "tasks"):
        if name in header:
            header[name] = read(header[name])
    return header, execution_state, agent_context


if __name__ == "__main__":
    pprint.pprint(restore(sys.argv[1], sys.argv[2]), sort_dicts=False)
