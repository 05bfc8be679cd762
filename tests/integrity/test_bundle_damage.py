"""A damaged, cut, foreign or newer file is refused, and the store stays as it was."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from bundles import exported, imported
from stores import Store, messages

from holdfast import CorruptError, HoldfastError, NewerVersionError, SyncClient, UsageError
from holdfast.backends.port import Commit
from holdfast.format import frame
from holdfast.format.bundle import sections as bundle


@pytest.fixture(scope="module")
def small() -> bytes:
    """A file with a section of every kind: two trees, a list, a blob, a fork, a tombstone."""
    client = SyncClient.memory()
    first = client.save("a", execution_state={"m": messages(9), "text": "blob " * 1000}, session_id="s")
    second = client.save("a", execution_state={"m": messages(10), "n": 1}, session_id="s", note="x")
    client.save("a", execution_state={"n": [2] * 200, "k": "v" * 300}, session_id="s")
    client.pin(first)
    client.fork(first, "f")
    client.expire(second)
    client.save("b", execution_state={}, session_id="another tree")
    return exported(client)


def refused(client: SyncClient, data: bytes) -> HoldfastError:
    with pytest.raises((CorruptError, UsageError, NewerVersionError)) as caught:
        imported(client, data)
    return caught.value


def test_the_small_file_is_one(small: bytes) -> None:
    kinds, offset = set(), len(bundle.PREAMBLE)
    while offset < len(small):
        head = bundle.read_head(small[offset : offset + bundle.HEAD_BYTES])
        kinds.add(head.kind)
        offset += bundle.HEAD_BYTES + head.size
    assert kinds >= {b"H", b"T", b"W", b"E", b"B", b"R", b"Z"}


@pytest.mark.slow
def test_each_flipped_byte_is_refused(small: bytes) -> None:
    client = SyncClient.memory()
    client.save("x", execution_state={"n": 1}, session_id="mine")
    before = client.stats()
    for at in range(len(small)):
        damaged = bytearray(small)
        damaged[at] ^= 1 << at % 8
        refused(client, bytes(damaged))
    assert client.stats() == before
    assert imported(client, small).imported > 0


@pytest.mark.slow
def test_each_length_that_is_too_short_is_refused(small: bytes) -> None:
    client = SyncClient.memory()
    before = client.stats()
    for length in range(len(small)):
        refused(client, small[:length])
    assert client.stats() == before


def test_what_is_damaged_leaves_every_kind_of_store_as_it_was(store: Store, small: bytes) -> None:
    client = store.client()
    client.save("x", execution_state={"m": messages(20)}, session_id="mine")
    before = client.stats()
    for at in range(0, len(small), len(small) // 20):
        refused(client, small[:at] + b"\x00\xff" + small[at + 2 :])
        refused(client, small[:at])
    assert client.stats() == before


def test_what_follows_the_end_is_refused(quick: SyncClient, small: bytes) -> None:
    assert isinstance(refused(quick, small + b"\x00"), CorruptError)
    assert isinstance(refused(quick, small + small), CorruptError)


def test_a_foreign_file_is_refused(quick: SyncClient) -> None:
    for foreign in (b"", b"SQLite format 3\x00" * 100, b"PK\x03\x04", small_text()):
        error = refused(quick, foreign)
        assert isinstance(error, UsageError)
        assert "holdfast export" in str(error)


def small_text() -> bytes:
    return b"\x89HFAST\n a file whose line ends were changed"


def test_a_newer_file_is_refused(quick: SyncClient, small: bytes) -> None:
    newer = bytearray(small)
    newer[len(bundle.MAGIC)] = bundle.VERSION + 1
    error = refused(quick, bytes(newer))
    assert isinstance(error, NewerVersionError)
    assert "Upgrade" in str(error)


# -- files that somebody made on purpose -------------------------------------------------------------------------------


def sections(data: bytes) -> list[tuple[bytes, bytes]]:
    found, offset = [], len(bundle.PREAMBLE)
    while offset < len(data):
        head = bundle.read_head(data[offset : offset + bundle.HEAD_BYTES])
        start = offset + bundle.HEAD_BYTES
        found.append((head.kind, data[start : start + head.size]))
        offset = start + head.size
    return found


def sealed_again(parts: list[tuple[bytes, bytes]]) -> bytes:
    """A file of these sections, with every checksum as it must be."""
    import hashlib

    body = bundle.PREAMBLE + b"".join(bundle.section(kind, payload) for kind, payload in parts[:-1])
    counts, _ = bundle.read_trailer(parts[-1][1])
    return body + bundle.trailer(counts, hashlib.sha256(body).digest())


def changed(data: bytes, kind: bytes, change: Callable[[bytes], bytes]) -> bytes:
    return sealed_again([(of, change(payload) if of == kind else payload) for of, payload in sections(data)])


def test_sealing_again_is_exact(quick: SyncClient, small: bytes) -> None:
    assert sealed_again(sections(small)) == small


@pytest.mark.parametrize("kind", [b"T", b"W", b"E", b"B", b"R"])
def test_a_section_that_is_left_out_is_refused(quick: SyncClient, small: bytes, kind: bytes) -> None:
    parts = sections(small)
    at = next(at for at, (of, _) in enumerate(parts) if of == kind)
    refused(quick, sealed_again(parts[:at] + parts[at + 1 :]))
    assert quick.stats().checkpoints == 0


@pytest.mark.parametrize("kind", [b"T", b"W", b"E", b"B", b"R"])
def test_a_section_that_is_there_twice_is_refused(quick: SyncClient, small: bytes, kind: bytes) -> None:
    parts = sections(small)
    at = next(at for at, (of, _) in enumerate(parts) if of == kind)
    refused(quick, sealed_again(parts[: at + 1] + parts[at:]))


def test_contents_that_are_not_what_was_saved_are_refused(quick: SyncClient, small: bytes) -> None:
    def other_elements(payload: bytes) -> bytes:
        run = bytearray(frame.content(payload[bundle.PLACE_BYTES :]))
        run[-3] ^= 1
        return payload[: bundle.PLACE_BYTES] + frame.frame_raw(bytes(run))

    def other_blob(payload: bytes) -> bytes:
        return payload[:32] + frame.frame_raw(frame.content(payload[32:])[:-1] + b"!")

    for kind, change in ((b"E", other_elements), (b"B", other_blob)):
        assert isinstance(refused(quick, changed(small, kind, change)), CorruptError)
    assert quick.stats().checkpoints == 0


def test_rows_that_are_none_of_a_checkpoint_are_refused(quick: SyncClient, small: bytes) -> None:
    for row in (
        bundle.RowEntry("logs", b"next", bytes(8), of_store=True),
        bundle.RowEntry("head", b"s", b"\x92\xc0\x01", of_store=False),
        bundle.RowEntry("pin", bytes(16), b"", of_store=False),
    ):
        [section] = bundle.rows([row])
        refused(quick, changed(small, b"W", lambda _, section=section: section[bundle.HEAD_BYTES :]))


def test_a_frame_that_inflates_beyond_measure_is_refused_before_it_is_inflated(quick: SyncClient, small: bytes) -> None:
    import zstandard

    # A zstd frame that says it has 2⁴⁰ bytes: only its header is true.
    header = b"\x28\xb5\x2f\xfd\xe0" + (1 << 40).to_bytes(8, "little")
    bomb = frame.ZSTD + header + zstandard.ZstdCompressor().compress(b"x")[9:]
    for kind in (b"H", b"T", b"R"):
        error = refused(quick, changed(small, kind, lambda _: bomb))
        assert "claims" in str(error)


def test_a_damaged_store_is_not_exported(store: Store) -> None:
    client = store.client()
    client.save("a", execution_state={"m": messages(30)}, session_id="s")
    backend = store.backend()
    [run] = backend.page_segments(None, 1)
    [[found]] = backend.segments([_whole(run)])
    data = bytearray(found.data)
    data[-5] ^= 1
    from holdfast.backends.port import SegmentDelete

    pieces = ((run.first, run.length, bytes(data)),)
    [outcome] = backend.commit_all(
        [Commit(b"", delete_segments=[SegmentDelete(run.log, run.first, run.length, pieces)])]
    )
    assert outcome is None
    with pytest.raises(CorruptError, match="can't be exported"):
        client.export(io.BytesIO())


def _whole(run):
    from holdfast.backends.port import Span

    return Span(run.log, run.first, run.first + run.length)
