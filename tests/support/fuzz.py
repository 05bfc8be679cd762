"""Fuzzer: generates hostile trees, values and databases with valid hashes, and opens them.

    fuzz.py (trees | values | databases) COUNT SEED FOLDER

Prints how many were refused and taken, as JSON. Ends with a traceback, and what was tried, at the
first one that breaks anything: an error that is none of ours, more than `SECONDS`, a path outside,
a repository or a set-id bit that was written.
"""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import signal
import sqlite3
import stat
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import ormsgpack
from forge import Forge

from holdfast import HoldfastError, SyncClient
from holdfast.backends.bridge.step import run_inline
from holdfast.backends.port import Commit
from holdfast.format.files import tree_node
from holdfast.format.files.snapshot import HOLE, Chunk
from holdfast.format.files.tree_node import Child
from holdfast.format.rows import imported_snapshot
from holdfast.model.control_files import is_control_name
from holdfast.model.snapshot import FileEntry

SECONDS = 20
NAMES = [b"a", b"b", b"sub", b".git", b".GIT", b"HEAD", b"objects", b"refs", b"config", b"hooks", b".holdfast", b"\xff",
         b"-rf", b".hg", b"con", b"..", b".", b"", b"x\0", b"a" * 300]  # fmt: skip
SAFE_NAMES = 15  # so many of them can be names of files
Round = Callable[[random.Random, Path], str]


# -- trees -------------------------------------------------------------------------------------------------------------


def some_path(chance: random.Random) -> bytes:
    names = NAMES if chance.random() < 0.1 else NAMES[:SAFE_NAMES]
    return b"/".join(chance.choice(names) for _ in range(chance.randint(1, 4)))


def some_entry(chance: random.Random, forge: Forge) -> FileEntry:
    path, mode = some_path(chance), chance.choice((0o644, 0o755, 0o4755, 0o2755, 0o1777, 0o7777, 0, 0o17777))
    kind = chance.randrange(5)
    if kind == 0:
        return forge.directory(path, mode)
    if kind == 1:
        target = chance.choice((b"/etc/passwd", b"../../x", b"a", b"", b".git"))
        return FileEntry(path, "symlink", mode, chance.choice((len(target), 7)), target)
    if kind == 2:
        size = chance.choice((1, 1 << 20, 1 << 30, 1 << 40, 1 << 62))
        hash_ = chance.choice((HOLE, forge.put(b"12345")))
        return forge.chunked(path, [Chunk(size, hash_)] * chance.randint(1, 3), chance.choice((None, 1 << 21, 5)))
    content = chance.randbytes(chance.randint(0, 50))
    entry = forge.file(path, content, mode)
    return entry._replace(size=chance.choice((len(content), len(content), 0, 99, 1 << 33)))


def with_parents(entries: list[FileEntry], forge: Forge) -> list[FileEntry]:
    """Mostly there are directories for what is in them."""
    found = {entry.path: entry for entry in entries}
    for entry in entries:
        above = entry.path.rpartition(b"/")[0]
        while above:
            if above not in found or chance_is_small(above):
                found[above] = forge.directory(above)
            above = above.rpartition(b"/")[0]
    return list(found.values())


def chance_is_small(path: bytes) -> bool:
    return sum(path) % 7 != 0


def some_root(chance: random.Random, forge: Forge) -> bytes:
    """An honest tree, or hand-made nodes over leaves that may be anything."""
    entries = with_parents([some_entry(chance, forge) for _ in range(chance.randint(0, 12))], forge)
    if chance.random() < 0.6:
        return forge.tree(entries)
    leaves = [forge.node(0, sorted(chance.sample(entries, min(len(entries), 3)))) for _ in range(3)]
    level = 1
    while chance.random() < 0.8 and level < 30:
        children = [Child(some_path(chance), chance.choice(leaves)) for _ in range(chance.randint(0, 4))]
        if chance.random() < 0.8:
            children.sort()
        leaves = [forge.node(chance.choice((level, level, level, 0, 5, 40)), children), *leaves[:2]]
        level += 1
    return leaves[0]


def try_tree(chance: random.Random, folder: Path) -> str:
    forge = Forge()
    root = some_root(chance, forge)
    counts = [chance.choice((0, 1, 5)) for _ in range(4)]
    if chance.random() < 0.8:  # what the tree holds, so far as that can be said
        counts = counts_of(forge, root) or counts
    ref = forge.save(root, counts)
    place = folder / "fork"
    client = SyncClient.memory()
    try:
        client.import_(io.BytesIO(forge.bundle()))
    except HoldfastError:  # no such bundle can be written, or read: then it is in a store that somebody has made
        client = forge.client
        [reference] = {found.workspace for found in client.timeline(session_id="s")}
        assert reference is not None
        run_inline(client._ctx.backend.commit(Commit(tree=b"", rows=[imported_snapshot.mark(reference)])))
    try:
        client.fork(ref, workspace=place)
        check_written(place)
        here = folder / "here"
        here.mkdir()
        client.workspace(here).restore(ref)
        check_written(here)
    except HoldfastError:
        return "refused"
    finally:
        assert not {*os.listdir(folder)} - {"fork", "here"}
    return "taken"


def counts_of(forge: Forge, root: bytes) -> list[int] | None:
    found: Counter[str] = Counter()
    waiting = [root]
    while waiting and found["node"] < 100:
        found["node"] += 1
        try:
            _, items = tree_node.unpack(forge.blobs[waiting.pop()])
        except (HoldfastError, KeyError):
            return None
        for item in items:
            if isinstance(item, Child):
                waiting.append(item.hash)
            else:
                found[item.kind] += 1
                found["size"] += item.size if item.kind == "file" else 0
    return [found["file"], found["dir"], found["symlink"], min(found["size"], 1 << 63)]


def check_written(place: Path) -> None:
    for where, folders, files in os.walk(os.fsencode(place)):
        for name in (*folders, *files):
            mode = os.lstat(where + b"/" + name).st_mode
            assert not is_control_name(name), (where, name)
            assert stat.S_ISLNK(mode) or not mode & 0o7000, (where, name, oct(mode))


# -- values ------------------------------------------------------------------------------------------------------------

OFFICIAL = [
    ("builtins", "set"), ("builtins", "frozenset"), ("collections", "deque"), ("datetime", "date"),
    ("datetime", "datetime"),
    ("datetime", "time"), ("datetime", "timedelta"), ("datetime", "timezone"), ("decimal", "Decimal"),
    ("ipaddress", "IPv4Network"),
    ("ipaddress", "IPv6Network"), ("ipaddress", "IPv4Address"), ("langchain_core.messages.ai", "AIMessage"),
    ("langchain_core.messages.ai", "AIMessageChunk"),
    ("langgraph.types", "Send"),
    ("langchain_core.documents.base", "Document"), ("langgraph.store.base", "Item"), ("langgraph.types", "Interrupt"),
    ("langgraph.types", "Command"), ("pathlib", "Path"), ("re", "compile"), ("uuid", "UUID"), ("zoneinfo", "ZoneInfo"),
    ("os", "system"),
]  # fmt: skip
OWN = [
    "deque",
    "OrderedDict",
    "Counter",
    "defaultdict",
    "memoryview",
    "timezone",
    "ZoneInfo",
    "Pattern",
    "IPv4Network",
    "IPv6Network",
    "IPv6Interface",
]
WORDS = [
    "content",
    "type",
    "value",
    "key",
    "namespace",
    "created_at",
    "updated_at",
    "tool_calls",
    "tool_call_chunks",
    "args",
    "dtype",
    "shape",
    "order",
    "data",
    "ns",
    "hour",
    "tzinfo",
    "",
    "id",
    "x",
]
ATOMS: list[Any] = [
    None, True, 0, -1, 2**63, 1.5, float("nan"), "", "x", "0.0.0.0/0", "::/0", "1E+999999999", "9" * 5000,
    "(a|b)" * 3000, "[ā-\uffff]" * 50,
    "[" + "1," * 20_000 + "x," + "1," * 20_000, "<f8", "C",
    "../../etc/passwd", "Europe/Paris", "2026-01-01T00:00:00+00:00", b"", b"\xff" * 16, "\ud800",
]  # fmt: skip


def some_value(chance: random.Random, depth: int = 0, *, own: bool) -> Any:
    kind = chance.randrange(8 if depth < 5 else 3)
    if kind < 3:
        atom = chance.choice(ATOMS)
        return "x" if atom == "\ud800" else atom
    below = [some_value(chance, depth + 1, own=own) for _ in range(chance.randint(0, 4))]
    if kind == 3:
        return below
    if kind == 4:
        return {chance.choice(WORDS): one for one in below}
    if own:
        name = chance.choice(
            [f"python:{one}" for one in OWN]
            + ["langgraph:Item", "langgraph:Send", "langchain:AIMessage", "numpy:ndarray", "numpy:scalar"]
        )
        code, payload = chance.choice(
            ((17, [name, chance.choice(below or [None])]), (17, [name, below]), (chance.randrange(20), below))
        )
        return ormsgpack.Ext(code, ormsgpack.packb(payload))
    module, name = chance.choice(OFFICIAL)
    given = chance.choice((below, {chance.choice(WORDS): one for one in below}, *below))
    return ormsgpack.Ext(chance.randrange(9), ormsgpack.packb([module, name, given, "fromisoformat"]))


def try_value(chance: random.Random, folder: Path) -> str:
    import numpy as np

    from holdfast.adapters.langgraph.allowed_types import SaverTypes
    from holdfast.adapters.langgraph.official_value import OfficialValueReader, UnreadableError
    from holdfast.codec.codec import Codec
    from holdfast.importers import checkpnt_state

    assert np is not None  # else its arrays are not built at all
    own = chance.random() < 0.5
    data = ormsgpack.packb(some_value(chance, own=own))
    if chance.random() < 0.05:  # in a map whose keys may all have one hash
        length = chance.choice((2, 5, 14))
        numbers = chance.choice(((-1, -2), (0, 1)))
        keys = [tuple(chance.choice(numbers) for _ in range(length)) for _ in range(1 << length)]
        data = ormsgpack.packb(dict.fromkeys(keys), option=ormsgpack.OPT_NON_STR_KEYS)
    if chance.random() < 0.2:
        flipped = bytearray(data)
        flipped[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        data = bytes(flipped)
    try:
        if own:
            Codec(SaverTypes()).decode(data)
        else:
            with suppress(ValueError):
                checkpnt_state.unpack(data)
            OfficialValueReader().read("msgpack", data)
    except (HoldfastError, UnreadableError):
        return "refused"
    return "taken"


# -- databases
# -----------------------------------------------------------------------------------------------------------

COLUMNS = {
    "checkpoints": (
        "thread_id",
        "checkpoint_ns",
        "checkpoint_id",
        "parent_checkpoint_id",
        "type",
        "checkpoint",
        "metadata",
    ),
    "writes": ("thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx", "channel", "type", "value"),
}


def try_database(chance: random.Random, folder: Path) -> str:
    from holdfast.langgraph import import_sqlite

    path = folder / "theirs.db"
    shutil.copyfile(folder.parent / "honest.db", path)
    with closing(sqlite3.connect(path)) as connection:
        for _ in range(chance.randint(1, 3)):
            table = chance.choice([*COLUMNS])
            column = chance.choice(COLUMNS[table])
            value = ormsgpack.packb(some_value(chance, own=False))
            odd = chance.choice(
                (None, 7, 2**62, 1.5, "text", "", b"", b"\xff", value, b"\xed\xa0\x80", chance.choice(WORDS))
            )
            as_text = chance.random() < 0.3 and isinstance(odd, bytes)
            put = "CAST(? AS TEXT)" if as_text else "?"
            connection.execute(
                f"UPDATE OR IGNORE {table} SET {column} = {put} WHERE rowid = ?", (odd, chance.randint(1, 5))
            )
        connection.commit()
    report = import_sqlite(SyncClient.memory(), path)
    assert report.imported + len(report.skipped) == 5, report
    return "refused" if report.skipped else "taken"


ROUNDS: dict[str, Round] = {"trees": try_tree, "values": try_value, "databases": try_database}


def hang(*_: object) -> None:
    raise TimeoutError(f"it takes more than {SECONDS} s")


def main() -> None:
    kind, count, seed, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
    signal.signal(signal.SIGALRM, hang)
    said: Counter[str] = Counter()
    for number in range(count):
        name = f"{kind} {seed} {number}"
        place = folder / "round"
        place.mkdir()
        signal.alarm(SECONDS)
        try:
            said[ROUNDS[kind](random.Random(name), place)] += 1
        except BaseException as error:
            error.add_note(f"with random.Random({name!r})")
            raise
        finally:
            signal.alarm(0)
            remove(place)
    json.dump(said, sys.stdout)


def remove(place: Path) -> None:
    """Removes a directory, whatever the modes of what is in it are."""
    for where, folders, _ in os.walk(place):
        for name in folders:
            below = Path(where, name)
            if not below.is_symlink():
                below.chmod(0o700)
    shutil.rmtree(place)


if __name__ == "__main__":
    main()
