"""The worked example of docs/format.md, made by the library itself.

`python tests/support/format_example.py` writes it.
"""

import sqlite3
import tempfile
from pathlib import Path

import ormsgpack

from holdfast import SyncClient
from holdfast.model import ids

DOCUMENT = Path(__file__).parents[2] / "docs" / "format.md"
BEGIN, END = "<!-- example: begin -->", "<!-- example: end -->"
FIRST_MS = 1_767_225_600_000  # 2026-01-01


def make_store(path: Path) -> list[str]:
    """A store of two checkpoints, the same at every run but for numbers that mean nothing."""
    made: list[str] = []
    with SyncClient.sqlite(path) as client:

        def new_id(tag: bytes | None = None) -> bytes:
            return ids.make(FIRST_MS + 1000 * len(made), 0, bytes([7, 7, 7, len(made) + 1, 1, 2, 3, 4]), tag)

        client._ctx.new_id = new_id
        client._ctx.now_us = lambda: (FIRST_MS + 1000 * len(made)) * 1000
        made.append(client.save("writer", execution_state={"n": 1}, session_id="s"))
        messages = [f"{number} {'x' * 600}" for number in range(8)]
        made.append(client.save("writer", execution_state={"n": 2, "messages": messages}, session_id="s"))
    return made


def hex_lines(data: bytes, at: int = 0) -> list[str]:
    return [
        f"    {at + start:04x}  {data[start : start + 16].hex(' '):47}  {_printable(data[start : start + 16])}"
        for start in range(0, len(data), 16)
    ]


def _printable(data: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data)


def shown(value: object) -> str:
    """A decoded value on one line, long bytes and strings cut."""
    if isinstance(value, bytes):
        return f"h'{value.hex()}'" if len(value) <= 20 else f"h'{value[:4].hex()}…' ({len(value)} bytes)"
    if isinstance(value, list):
        return f"[{', '.join(map(shown, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {shown(item)}' for key, item in value.items())}}}"
    return repr(value).replace("'", '"')


def example() -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        first, second = make_store(path)
        database = sqlite3.connect(path)
        records = [data for (data,) in database.execute("SELECT data FROM record ORDER BY n")]
        [(k, length, segment)] = database.execute("SELECT k, length, data FROM run")
        rows = database.execute("SELECT space, key, version, value FROM row ORDER BY space, key").fetchall()
        database.close()
    data = records[0]
    header_end = 8 + int.from_bytes(data[4:8], "little")
    other = records[1]
    other_end = 8 + int.from_bytes(other[4:8], "little")
    lines = [f"The record of `{first}`, {len(data)} bytes:", ""]
    for title, start, end in (
        ("magic, kind 0, version 1, size of the header", 0, 8),
        ("header", 8, header_end),
        ("manifest", header_end, len(data) - 68),
        ("root", len(data) - 68, len(data) - 36),
        ("checksum", len(data) - 36, len(data) - 4),
        ("CRC-32", len(data) - 4, len(data)),
    ):
        lines += [f"    {title}", *hex_lines(data[start:end], start)]
    lines += ["", "Decoded, with bytes as h'…':", ""]
    lines += [f"    header    {shown(ormsgpack.unpackb(data[8:header_end]))}"]
    lines += [f"    manifest  {shown(ormsgpack.unpackb(data[header_end:-68]))}"]
    lines += ["", f"The record of `{second}`, decoded: its list is in a log, its skeleton refers to it.", ""]
    lines += [f"    header    {shown(ormsgpack.unpackb(other[8:other_end]))}"]
    manifest = ormsgpack.unpackb(other[other_end:-68])
    lines += [f"    skeleton  {shown(manifest[0])}", *(f"    list      {shown(entry)}" for entry in manifest[1])]
    lines += [
        f"    blobs     {shown(manifest[2])}",
        "",
        "The skeleton's bytes; `d5 12 00 00` is the REF: an Ext of two bytes, code 18, kind 0, index 0.",
        "",
    ]
    lines += hex_lines(manifest[0][2])
    lines += [
        "",
        (
            f"The segment, k = {k} = {k >> 28} · 2²⁸ + {k & (1 << 28) - 1}, length {length}, "
            f"{len(segment)} bytes. It begins:"
        ),
        "",
    ]
    lines += hex_lines(segment[:64])
    lines += ["", "The rows:", ""]
    lines += [
        f"    {space:8} {shown(key) if not key.isascii() else key.decode():6} version {version}  {shown(value)}"
        for space, key, version, value in rows
    ]
    return "\n".join(lines)


def written(text: str) -> str:
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{example()}\n\n{END}{after}"


if __name__ == "__main__":
    DOCUMENT.write_text(written(DOCUMENT.read_text("utf-8")), "utf-8")
