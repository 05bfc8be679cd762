"""Sealed stores beside plain ones: `python -m benchmarks.sealed [--rounds 15] [--saves 100]`.

Both are SQLite files with the durability of production, measured in turn. The times are medians of
wall clock, and of the CPU of the process, which a busy machine disturbs less. There are two floors,
which no implementation gets below. One adds the calls of AES-GCM that the sealed store makes to the
CPU of the plain one. The other, for saves, is a plain store that also builds the same envelopes, by
the Python calls that they can't do without, and drops them.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
import zlib
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from benchmarks import environment
from benchmarks.subprocesses import ROOT
from benchmarks.tables import number, table
from holdfast import Client, KeyRing, SyncClient
from holdfast.backends.bridge.base import Bridge
from holdfast.backends.bridge.wrapper import WrappingBridge
from holdfast.backends.port import Commit, RecordWrite, RowKey, RowWrite
from holdfast.sealing import envelope, store_keys

PACKAGES = ("holdfast", "ormsgpack", "zstandard", "cryptography")
GOALS = {
    "save, 1 KB": 1.15,
    "32 writers, a save each": 1.15,
    "restore, list of 1 MB": 1.3,
    "restore, list of 200 appends": 1.3,
    "restore, 16 small segments": 1.3,
    "bytes": 1.1,
}
STATE = {"messages": [{"role": "user", "content": "x" * 300} for _ in range(3)]}
SHORT = [{"role": "user", "content": f"{n} " + "abcdefghij" * 12} for n in range(127)]
LONG = {"messages": [{"role": "user", "content": f"{n} " + "abcdefghij" * 50} for n in range(2000)]}
Sample = tuple[float, float]  # wall clock, CPU


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="of each kind")
    parser.add_argument("--saves", type=int, default=100, help="of a round")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        results: dict[str, Any] = {"environment": environment.describe(Path(directory), PACKAGES)}
        results |= {"rounds": given.rounds, "saves": given.saves, **measure(given, Path(directory))}
    given.results.mkdir(parents=True, exist_ok=True)
    (given.results / "sealed.json").write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    page = "\n".join(_page(results)) + "\n"
    (given.results / "sealed.md").write_text(page, "utf-8")
    print(page)


def measure(given: argparse.Namespace, where: Path) -> dict[str, Any]:
    ring = KeyRing.new_key(where / "keys.toml")

    def options(is_sealed: bool) -> dict[str, Any]:
        return {"keys": ring} if is_sealed else {}

    def path(is_sealed: bool) -> Path:
        return where / ("sealed.db" if is_sealed else "plain.db")

    def save(is_sealed: bool, *, builds: bool = False) -> list[Sample]:
        with SyncClient.sqlite(path(is_sealed), **options(is_sealed)) as client:
            client.save("a", session_id="s", execution_state=STATE)
            if builds:
                _build_envelopes(client)
            return [_timed(lambda: client.save("a", session_id="s", execution_state=STATE)) for _ in range(given.saves)]

    def together(is_sealed: bool, *, builds: bool = False) -> list[Sample]:
        async def run() -> list[Sample]:
            taken = []
            async with Client.sqlite(path(is_sealed), **options(is_sealed)) as client:
                for turn in range(max(given.saves // 10, 1) + 1):
                    began = time.perf_counter(), time.process_time()
                    saves = (client.save("a", session_id=f"w{n}", execution_state=STATE) for n in range(32))
                    await asyncio.gather(*saves)
                    if builds and not turn:
                        _build_envelopes(client)
                    if turn:
                        taken.append((time.perf_counter() - began[0], time.process_time() - began[1]))
            return taken

        return asyncio.run(run())

    ids: dict[tuple[bool, str], str] = {}

    def restore(name: str) -> Callable[[bool], list[Sample]]:
        def turn(is_sealed: bool) -> list[Sample]:
            with SyncClient.sqlite(path(is_sealed), **options(is_sealed)) as client:
                client.restore(ids[is_sealed, name])
                return [_timed(lambda: client.restore(ids[is_sealed, name])) for _ in range(max(given.saves // 10, 1))]

        return turn

    for is_sealed in (False, True):
        with SyncClient.sqlite(path(is_sealed), **options(is_sealed)) as client:
            ids[is_sealed, "long"] = client.save("a", session_id="long", execution_state=LONG)
            for count in range(10, 210):
                state = {"messages": LONG["messages"][:count]}
                ids[is_sealed, "appends"] = client.save("a", session_id="appends", execution_state=state)
            for count in range(112, 128):  # one segment, and as many small ones as a sealed store leaves
                ids[is_sealed, "small"] = client.save("a", session_id="small", execution_state={"m": SHORT[:count]})
    found = {
        "save, 1 KB": _in_turn(given.rounds, save),
        "32 writers, a save each": _in_turn(given.rounds, together),
        "restore, list of 1 MB": _in_turn(given.rounds, restore("long")),
        "restore, list of 200 appends": _in_turn(given.rounds, restore("appends")),
        "restore, 16 small segments": _in_turn(given.rounds, restore("small")),
    }
    for name, turn in (
        ("save, 1 KB", lambda client: client.save("a", session_id="s", execution_state=STATE)),
        ("restore, list of 1 MB", lambda client: client.restore(ids[True, "long"])),
        ("restore, list of 200 appends", lambda client: client.restore(ids[True, "appends"])),
        ("restore, 16 small segments", lambda client: client.restore(ids[True, "small"])),
    ):
        found[name]["bare_ms"] = _bare_calls(path(True), ring, turn)
    found["32 writers, a save each"]["bare_ms"] = 32 * found["save, 1 KB"]["bare_ms"]
    for one in found.values():
        one["floor_ratio"] = 1 + one["bare_ms"] / one["plain_cpu_ms"]
    sizes = []
    for is_sealed in (False, True):
        with SyncClient.sqlite(path(is_sealed), **options(is_sealed)) as client:
            stats = client.stats()
            sizes.append(stats.record_bytes + stats.segment_bytes + stats.blob_bytes + stats.row_bytes)
    for name, turn_with in (("save, 1 KB", save), ("32 writers, a save each", together)):
        with_envelopes = _in_turn(given.rounds, lambda builds, turn=turn_with: turn(False, builds=builds))
        found[name]["envelopes_ratio"] = with_envelopes["cpu_ratio"]
    return {"times": found, "bytes": {"plain": sizes[0], "sealed": sizes[1], "ratio": sizes[1] / sizes[0]}}


class _Recorder:
    """A cipher that notes its calls."""

    def __init__(self, cipher: AESGCM, calls: list[Callable[[], bytes]]) -> None:
        self._cipher, self._calls = cipher, calls

    def encrypt(self, nonce: bytes, data: bytes, bound_to: bytes) -> bytes:
        self._calls.append(partial(self._cipher.encrypt, nonce, data, bound_to))
        return self._cipher.encrypt(nonce, data, bound_to)

    def decrypt(self, nonce: bytes, data: bytes, bound_to: bytes) -> bytes:
        self._calls.append(partial(self._cipher.decrypt, nonce, data, bound_to))
        return self._cipher.decrypt(nonce, data, bound_to)


def _bare_calls(path: Path, ring: KeyRing, turn: Callable[[SyncClient], object]) -> float:
    """Return the milliseconds that the calls of AES-GCM of an operation take, made again alone."""
    calls: list[Callable[[], bytes]] = []
    original = store_keys.new_cipher
    store_keys.new_cipher = lambda key: _Recorder(AESGCM(key), calls)
    try:
        with SyncClient.sqlite(path, keys=ring) as client:
            turn(client)
            calls.clear()
            turn(client)
    finally:
        store_keys.new_cipher = original

    def repeat() -> None:
        for call in calls:
            call()

    return 1000 * statistics.median(_timed(repeat)[1] for _ in range(200))


class _Envelopes(WrappingBridge):
    """A plain store whose commits also build the envelopes of their record and rows, and drop them.

    They are built by the calls that each needs at least: names are hidden, and what the envelopes of a
    key share is put together, before.
    """

    def __init__(self, inner: Bridge) -> None:
        super().__init__(inner)
        self.cipher, kid, self.scope = AESGCM(os.urandom(32)), os.urandom(8), os.urandom(48)
        self._suite = envelope.SUITE + kid
        self._of_record = self.scope + envelope.RECORD + self._suite
        self._of_row = self.scope + envelope.ROW + self._suite
        self._sizes = [bytes((size,)) for size in range(128)]
        self._names: dict[bytes, bytes] = {}
        self._keys: dict[RowKey, tuple[RowKey, bytes]] = {}

    def commit(self, commit: Commit) -> Awaitable[None]:
        self.build(commit)
        return self._inner.commit(commit)

    def build(self, commit: Commit) -> Commit:
        encrypt, join, padded_size, crc = self.cipher.encrypt, b"".join, envelope.padded_size, zlib.crc32
        nonces = os.urandom(12 + 12 * len(commit.rows))
        assert commit.record is not None
        id_, name, sequence, data, _, expires_at_us, _, spans, feed = commit.record
        hidden = self._names.setdefault(name, envelope.RECORD * 16)
        nonce, kind = nonces[:12], b"HF" + data[2:3] + envelope.RECORD_VERSION
        place = join((b"\x10", id_, b"\x10", hidden, sequence.to_bytes(8, "big")))
        plain = join((self._sizes[len(name)], name, data, b"\x01"))
        plain = plain.ljust(padded_size(len(plain)), b"\0")
        whole = join((kind, self._suite, nonce, encrypt(nonce, plain, join((self._of_record, kind, place)))))
        sealed = whole + crc(whole).to_bytes(4, "big")
        record = RecordWrite(id_, hidden, sequence, sealed, None, expires_at_us, None, spans, feed)
        rows = []
        for at, (key, value, expect, was) in enumerate(commit.rows, 1):
            known = self._keys.get(key)
            if known is None:
                hidden_key = key._replace(key=envelope.ROW * 16)
                known = self._keys[key] = hidden_key, self._of_row + envelope.row_place(*hidden_key)
            assert value is not None
            hidden_key, bound_to = known
            nonce = nonces[12 * at : 12 * at + 12]
            plain = join((self._sizes[len(key.key)], key.key, value, b"\x01"))
            encrypted = encrypt(nonce, plain.ljust(padded_size(len(plain)), b"\0"), bound_to)
            whole = join((envelope.MAGIC, self._suite, nonce, encrypted))
            rows.append(RowWrite(hidden_key, whole + crc(whole).to_bytes(4, "big"), expect, was))
        return Commit(commit.tree, record, rows=rows)


def _build_envelopes(client: SyncClient | Client) -> None:
    """Let a plain client build envelopes, too: one opens to what was sealed."""
    bridge = client._ctx.backend = _Envelopes(cast("Bridge", client._ctx.backend))
    id_, key = bytes(16), RowKey("head", b"s", bytes(16))
    made = bridge.build(Commit(id_, RecordWrite(id_, b"s", 1, b"HF\0\1" + bytes(1000)), rows=[RowWrite(key, b"value")]))
    assert made.record is not None
    place = envelope.record_place(id_, made.record.session, 1)
    opened = envelope.unseal_record(bridge.cipher, bridge.scope + envelope.RECORD, place, made.record.data, "it")
    assert opened == (b"s", b"HF\0\1" + bytes(1000))
    [(hidden, value, _, _)] = made.rows
    assert value is not None
    place = envelope.row_place(*hidden)
    assert envelope.unseal(bridge.cipher, bridge.scope + envelope.ROW, place, value, "it") == (b"s", b"value")


def _timed(call: Callable[[], Any]) -> Sample:
    began = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - began[0], time.process_time() - began[1]


def _in_turn(rounds: int, turn: Callable[[bool], list[Sample]]) -> dict[str, float]:
    """Return medians in milliseconds, and their ratios; minima of rounds beside them."""
    samples: dict[bool, list[list[Sample]]] = {True: [], False: []}
    for number_ in range(rounds):
        for is_sealed in (True, False) if number_ % 2 else (False, True):
            samples[is_sealed].append(turn(is_sealed))
    result: dict[str, float] = {}
    for at, clock in enumerate(("wall", "cpu")):
        medians, least = [], []
        for is_sealed in (False, True):
            of_rounds = [1000 * statistics.median(sample[at] for sample in one) for one in samples[is_sealed]]
            medians.append(statistics.median(of_rounds))
            least.append(min(of_rounds))
        result |= {f"plain_{clock}_ms": medians[0], f"sealed_{clock}_ms": medians[1]}
        result |= {f"{clock}_ratio": medians[1] / medians[0], f"{clock}_least_ratio": least[1] / least[0]}
    return result


def _page(results: dict[str, Any]) -> list[str]:
    rows = [
        [
            name,
            f"{number(one['plain_wall_ms'])} ms",
            f"{number(one['sealed_wall_ms'])} ms",
            f"{one['wall_ratio']:.2f}",
            f"{one['wall_least_ratio']:.2f}",
            f"{one['cpu_ratio']:.2f}",
            f"{one['floor_ratio']:.2f}",
            f"{one['envelopes_ratio']:.2f}" if "envelopes_ratio" in one else "",
            f"{GOALS[name]:.2f}",
        ]
        for name, one in results["times"].items()
    ]
    size = results["bytes"]
    rows.append(
        ["bytes", str(size["plain"]), str(size["sealed"]), f"{size['ratio']:.3f}", *4 * [""], f"{GOALS['bytes']:.2f}"]
    )
    heads = [
        "",
        "plain",
        "sealed",
        "ratio",
        "of the quickest rounds",
        "of CPU",
        "floor of CPU",
        "with envelopes",
        "goal",
    ]
    return [
        "# Sealed stores",
        "",
        "SQLite, sealed beside plain, in turn: medians. The floor is the CPU of the plain store and of the",
        "calls of AES-GCM alone; *with envelopes*, that of a plain store that builds the same envelopes,",
        "too, by as few Python calls as possible, and drops them.",
        "",
        *table(heads, rows),
    ]


if __name__ == "__main__":
    main()
