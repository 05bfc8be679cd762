"""Blobs of snapshots that are stored as deltas: small, exact, kept while needed, never in a cycle."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from stores import Store
from trees import in_snapshot, on_disk, write

from holdfast import SyncClient
from holdfast.backends.port import BlockingBackend
from holdfast.errors import CorruptError
from holdfast.format.files import blob_delta
from holdfast.operations import gc, snapshot_deltas

WORDS = b"alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu".split()


def text(seed: int, lines: int = 400) -> bytes:
    chosen = random.Random(seed)
    return b"".join(b"%s %d\n" % (b" ".join(chosen.choices(WORDS, k=6)), chosen.randrange(10**6)) for _ in range(lines))


def edited(data: bytes, number: int) -> bytes:
    """The text with another line in its middle."""
    lines = data.splitlines(keepends=True)
    return b"".join([*lines[:200], b"edit %d\n" % number, *lines[200:]])


def differences(backend: BlockingBackend) -> Iterator[tuple[bytes, bytes]]:
    """Every difference in the store: its key, and the hash of its base."""
    for info in backend.page_blobs(None, 10_000):
        [data] = backend.blobs([info.hash])
        if data is not None and blob_delta.is_difference(data):
            yield info.hash, blob_delta.base_of(info.hash, data)


def test_an_edit_of_a_file_costs_what_differs(store: Store, root: Path) -> None:
    for number in range(300):
        write(root, b"d%d/f%d" % (number % 9, number), text(number, 40))
    first = text(1000)
    write(root, b"d1/edited", first)
    client = store.client()
    workspace = client.workspace(root)
    workspace.snapshot()
    before = client.stats().blob_bytes
    write(root, b"d1/edited", edited(first, 1))
    taken = workspace.snapshot()
    assert client.stats().blob_bytes - before < 1_000  # the file has 20,000, each node some thousands
    assert in_snapshot(workspace, taken.checkpoint_id) == on_disk(root)
    assert client.verify().ok


def test_a_base_is_always_whole_and_every_snapshot_is_exact(store: Store, root: Path) -> None:
    """Edits, some of them taken back, by two who share a store."""
    client = store.client()
    other = root.with_name("other")
    other.mkdir()
    places = [(one, client.workspace(one, session_id=one.name)) for one in (root, other)]
    versions = [text(1), *(edited(text(1), number) for number in range(4)), text(2)]
    chosen = random.Random(4)
    taken: list[tuple[int, str, dict[bytes, object]]] = []
    for number in range(24):
        which = number % 2
        place, workspace = places[which]
        write(place, b"a%d" % chosen.randrange(2), chosen.choice(versions))
        saved = workspace.snapshot().checkpoint_id
        taken.append((which, saved, on_disk(place)))
    found = dict(differences(store.backend()))
    assert found
    assert not found.keys() & found.values()
    for data in store.backend().blobs(list(found.values())):
        assert data is not None
        assert not blob_delta.is_difference(data)
    for which, saved, was in taken:
        assert in_snapshot(places[which][1], saved) == was
    assert client.gc().blobs == 0


def test_what_a_difference_is_made_from_outlives_its_own_snapshot(store: Store, root: Path) -> None:
    client = store.client()
    workspace = client.workspace(root)
    write(root, b"a", text(1))
    first = workspace.snapshot().checkpoint_id
    write(root, b"a", edited(text(1), 1))
    second = workspace.snapshot().checkpoint_id
    assert list(differences(store.backend()))
    client.expire(first)
    client.gc()
    assert workspace.read(second, "a") == edited(text(1), 1)
    assert client.verify().ok
    usage = client.du()
    assert usage.unused_bytes == 0
    assert usage.file_bytes == usage.blob_bytes
    write(root, b"a", b"short")
    workspace.snapshot()
    client.expire(second)
    client.gc()
    assert list(differences(store.backend())) == []
    assert client.verify().ok


def test_a_difference_that_comes_after_the_marking_is_kept_with_its_base(store: Store, root: Path, monkeypatch) -> None:
    """The content that comes is there whole, and about to be collected; its difference is not. And
    what comes next is made from the whole one: so it is written again with it."""
    client, other = store.client(), store.client()
    workspace = client.workspace(root)
    write(root, b"a", edited(text(1), 1))
    garbage = workspace.snapshot().checkpoint_id
    for seed in (2, 1):  # so that nothing is made from the first
        write(root, b"a", text(seed))
        workspace.snapshot()
    client.expire(garbage)
    mark, taken = gc._mark, []

    async def then_save(*arguments, **named):
        marked = await mark(*arguments, **named)
        if not taken:
            write(root, b"a", edited(text(1), 1))
            taken.append(workspace.snapshot().checkpoint_id)
            write(root, b"a", edited(text(1), 2))
            taken.append(workspace.snapshot().checkpoint_id)
        return marked

    monkeypatch.setattr(gc, "_mark", then_save)
    assert other.gc().blobs > 0
    for number, saved in enumerate(taken, start=1):
        assert workspace.read(saved, "a") == edited(text(1), number)
    assert client.verify().ok
    other.gc()
    assert client.verify().ok


@pytest.mark.parametrize("how", ["unchanged", "changed", "changed, and its nodes forgotten"])
def test_what_this_process_remembers_may_be_gone_by_the_next_snapshot(store: Store, root: Path, how: str) -> None:
    """Somebody else has expired the last snapshot and collected what it alone had."""
    client, other = store.client(), store.client()
    workspace = client.workspace(root)
    for number in range(200):
        write(root, b"d%d/f%d" % (number % 9, number), text(number, 40))
    workspace.snapshot()
    write(root, b"d1/f1", text(1000, 40))
    last = workspace.snapshot().checkpoint_id
    other.expire(last)
    assert other.gc().blobs > 0
    if how != "unchanged":
        write(root, b"d2/f2", text(1001, 40))
    if how.endswith("forgotten"):
        workspace._opened.taker._recent = snapshot_deltas.RecentContents()
    taken = workspace.snapshot().checkpoint_id
    assert in_snapshot(workspace, taken) == on_disk(root)
    assert client.verify().ok


@pytest.mark.parametrize("harm", ["missing", "damaged"])
def test_damage_to_a_base_names_both(memory_store: Store, root: Path, harm: str) -> None:
    client = memory_store.client()
    workspace = client.workspace(root)
    write(root, b"a", text(1))
    workspace.snapshot()
    write(root, b"a", edited(text(1), 1))
    saved = workspace.snapshot().checkpoint_id
    content = hashlib.sha256(edited(text(1), 1)).digest()
    base = hashlib.sha256(text(1)).digest()
    assert dict(differences(memory_store.backend()))[blob_delta.key_of(content)] == base
    blobs = memory_store.backend()._blobs  # type: ignore[attr-defined]  # the memory backend's own
    data, when = blobs.pop(base)
    if harm == "damaged":
        blobs[base] = (data[:-40] + bytes(40), when)
    with pytest.raises(CorruptError) as refused:
        workspace.read(saved, "a")
    assert content.hex()[:16] in str(refused.value)
    assert base.hex()[:16] in str(refused.value)
    assert not client.verify().ok
    # The next snapshot is not built upon what is damaged.
    write(root, b"a", edited(text(1), 2))
    again = workspace.snapshot().checkpoint_id
    assert workspace.read(again, "a") == edited(text(1), 2)


@pytest.mark.parametrize("kind", [blob_delta.INSERTED, blob_delta.COMPRESSED], ids=["inserted", "compressed"])
def test_every_bit_of_a_difference_that_is_not_as_it_was_is_noticed(
    memory_store: Store, root: Path, kind: bytes
) -> None:
    client = memory_store.client()
    workspace = client.workspace(root)
    write(root, b"a", text(1))
    workspace.snapshot()
    now = edited(text(1), 1) if kind == blob_delta.INSERTED else b"first\n" + text(1) + b"last\n"
    write(root, b"a", now)
    saved = workspace.snapshot().checkpoint_id
    blobs = memory_store.backend()._blobs  # type: ignore[attr-defined]  # the memory backend's own
    key = blob_delta.key_of(hashlib.sha256(now).digest())
    whole, when = blobs[key]
    assert whole[:1] == kind
    noticed = 0
    for bit in range(8 * len(whole)):
        harmed = bytearray(whole)
        harmed[bit // 8] ^= 1 << bit % 8
        blobs[key] = (bytes(harmed), when)
        try:
            found = workspace.read(saved, "a")
        except CorruptError:
            noticed += 1
        else:
            assert found == now  # of some bits zstd takes no notice
    assert noticed >= 8 * len(whole) - 4
    blobs[key] = (whole, when)
    assert workspace.read(saved, "a") == now


def test_what_compresses_is_lent_to_one_at_a_time() -> None:
    """Two that use one at once, from threads of two event loops, would crash the process."""
    recent = snapshot_deltas.RecentContents()
    first, second = recent.borrow(), recent.borrow()
    assert first.inflate is not second.inflate
    assert first.deflate is not second.deflate
    recent.give_back(first)
    assert recent.borrow() is first


def test_a_bundle_has_whole_blobs(store: Store, root: Path, tmp_path: Path) -> None:
    client = store.client()
    workspace = client.workspace(root)
    for number in range(3):
        write(root, b"a", edited(text(1), number))
        saved = workspace.snapshot().checkpoint_id
    assert list(differences(store.backend()))
    client.export(tmp_path / "bundle")
    with SyncClient.memory() as there:
        there.import_(tmp_path / "bundle")
        assert there.verify().ok
        assert in_snapshot(there.workspace(root), saved) == on_disk(root)


def test_a_state_that_has_the_content_of_a_file_is_imported_whole(store: Store, root: Path, tmp_path: Path) -> None:
    """The store has the content already, but as a difference, of which no state can be made."""
    client = store.client()
    write(root, b"a", text(1))
    client.save("agent", session_id="s", workspace=root)
    write(root, b"a", edited(text(1), 1))
    client.save("agent", session_id="s", workspace=root)
    client.export(tmp_path / "first")
    with SyncClient.memory() as there:
        there.import_(tmp_path / "first")
        saved = there.save("agent", session_id="s", context={"a": edited(text(1), 1)})
        there.export(tmp_path / "second")
    client.import_(tmp_path / "second")
    assert client.restore(saved).agent_context == {"a": edited(text(1), 1)}
    assert client.verify().ok
