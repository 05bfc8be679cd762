"""Search for a secret in a store: raw bytes, decompressed bytes, and decoded values."""

from __future__ import annotations

import base64
import io
import json
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import zstandard

from holdfast import SyncClient

MAGIC = b"\x28\xb5\x2f\xfd"  # of a zstd frame


def assert_secret_is_not_stored(store: str, secret: str, *directories: Path) -> None:
    """Check that a store has no trace of a secret, and neither has any file in these directories."""
    found = sorted({where for where, data in _read_everything(store, directories) if _has_trace(data, secret)})
    assert not found, f"the secret is stored in {found}"


def _read_everything(store: str, directories: tuple[Path, ...]) -> Iterator[tuple[str, bytes]]:
    for where, data in _read_raw(store, directories):
        yield where, data
        for content in _inflate(data):
            yield f"{where}, decompressed", content
    bundle = io.BytesIO()
    with SyncClient.open(store) as client:
        client.export(bundle)
        for session in client.session_ids():
            yield f"the name of session {session}", session.encode()
            for listed in client.timeline(session, limit=None):
                checkpoint = client.restore(listed.checkpoint_id, migrate=False)
                yield f"checkpoint {listed.checkpoint_id}", repr(checkpoint).encode()
                yield f"the state of {listed.checkpoint_id}", _dump(checkpoint.execution_state)
            for effect in client.effects(session):
                yield f"effect {effect.effect_id}", repr(effect).encode()
    yield "the export", bundle.getvalue()
    for content in _inflate(bundle.getvalue()):
        yield "the export, decompressed", content


def _dump(state: object) -> bytes:
    return json.dumps(state, ensure_ascii=False, default=repr, skipkeys=True).encode("utf-8", "surrogatepass")


def _read_raw(store: str, directories: tuple[Path, ...]) -> Iterator[tuple[str, bytes]]:
    """Return the bytes as the store's own program has them: a file of SQLite may split a value between pages."""
    url = urlsplit(store)
    if url.scheme == "sqlite":
        path = Path("/", url.path.lstrip("/"))
        yield from _read_files(path.parent.glob(f"{path.name}*"))
        yield from _read_tables(path)
    elif url.scheme == "file":
        yield from _read_files(Path(url.path).rglob("*"))
    elif url.scheme.startswith("postgres"):
        yield from _read_postgres(store)
    elif url.scheme == "redis":
        yield from _read_redis(store)
    else:
        raise ValueError(f"the bytes of {store} can't be read")
    for directory in directories:
        yield from _read_files(directory.rglob("*"))


def _read_files(paths: Iterator[Path]) -> Iterator[tuple[str, bytes]]:
    for path in paths:
        if path.is_file():
            yield f"the file {path.name}", path.read_bytes()


def _read_tables(path: Path) -> Iterator[tuple[str, bytes]]:
    connection = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)
    try:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        for table in tables:
            for row in connection.execute(f'SELECT * FROM "{table}"'):
                yield from ((f"the table {table}", _as_bytes(value)) for value in row)
    finally:
        connection.close()


def _read_postgres(store: str) -> Iterator[tuple[str, bytes]]:
    import psycopg
    from psycopg import sql

    url = urlsplit(store)
    [schema] = parse_qs(url.query)["schema"]
    with psycopg.connect(url._replace(query="").geturl()) as connection:
        named = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,)).fetchall()
        assert named, f"there is no table in {schema}"
        for (table,) in named:
            for row in connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(schema, table))):
                yield from ((f"the table {table}", _as_bytes(value)) for value in row)


def _read_redis(store: str) -> Iterator[tuple[str, bytes]]:
    import redis

    url = urlsplit(store)
    [prefix] = parse_qs(url.query)["prefix"]
    with redis.Redis.from_url(url._replace(query="").geturl()) as client:
        keys = list(client.scan_iter(match=f"*{prefix}*"))
        assert keys, f"there is no key of {prefix}"
        for key in keys:
            yield f"the key {key!r}", key
            yield f"the key {key!r}", _read_key(client, key)


def _read_key(client: object, key: bytes) -> bytes:
    reader = {
        b"string": lambda: [client.get(key)],
        b"hash": lambda: [part for pair in client.hgetall(key).items() for part in pair],
        b"list": lambda: client.lrange(key, 0, -1),
        b"set": lambda: client.smembers(key),
        b"zset": lambda: client.zrange(key, 0, -1),
    }
    return b"\n".join(reader[client.type(key)]())


def _as_bytes(value: object) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    return str(value).encode("utf-8", "surrogatepass")


def _inflate(data: bytes) -> Iterator[bytes]:
    """Return the content of each zstd frame within the bytes."""
    position = data.find(MAGIC)
    while position >= 0:
        with suppress(zstandard.ZstdError):  # four bytes that look like a frame, or one that is split between pages
            yield zstandard.ZstdDecompressor().decompressobj().decompress(data[position:])
        position = data.find(MAGIC, position + 1)


def _has_trace(data: bytes, secret: str) -> bool:
    return any(form in data for form in write_in_forms(secret))


def write_in_forms(secret: str) -> set[bytes]:
    """Return the secret as text, escaped, in hex, and in base64 at each of its three offsets."""
    plain = secret.encode()
    forms = {plain, secret.encode("utf-16-le"), plain.hex().encode(), plain.hex().upper().encode()}
    forms |= {quote(secret, safe="").encode(), json.dumps(secret)[1:-1].encode(), repr(secret)[1:-1].encode()}
    for offset in range(3):
        shifted = bytes(offset) + plain
        whole = shifted[: len(shifted) // 3 * 3]  # the last characters depend on what follows
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            forms.add(encode(whole)[4 if offset else 0 :])
    return forms
