"""`rekey --data`: new keys for everything that is stored, beside writers, and at every crash point."""

from __future__ import annotations

import itertools
import os
import random
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from sealed_story import EVERY_SPACE, Raw, tell
from stores import RING, Recorder, Store

from holdfast import (
    ConflictError,
    CorruptError,
    KeyMissingError,
    KeyRing,
    StoreBusyError,
    SyncClient,
)
from holdfast.backends.bridge.step import run_inline
from holdfast.backends.port import STORE, BlockingBackend, Commit, RowKey, RowWrite
from holdfast.model import ids
from holdfast.operations import reseal
from holdfast.sealing import bridge, envelope, store_keys
from holdfast.sealing.key_ring import RawKey
from holdfast.sealing.store_keys import MARKER, SPACE

pytestmark = pytest.mark.every_store
EVERY_CRASH = "HOLDFAST_EVERY_STORE" in os.environ
NEW = KeyRing([RawKey("new", random.Random("new").randbytes(32))])


@pytest.fixture
def sealed(store: Store) -> Store:
    store.is_sealed = True
    return store


def fill(client: SyncClient) -> dict[str, Any]:
    saved: dict[str, Any] = {}
    for session in ("one", "two"):
        for number in range(2):
            state = {"list": [{"n": n, "text": f"{session} " * 30} for n in range(40 + number)], "blob": session * 3000}
            saved[client.save("a", session_id=session, execution_state=state)] = state
    first = next(iter(saved))
    client.fork(first, session_id="fork")
    forked = {**saved[first], "list": [*saved[first]["list"], {"n": "forked"}]}
    saved[client.save("a", session_id="fork", execution_state=forked)] = forked
    client.tag("named", first)
    client.handoff(first, "somebody")
    return saved


def check(client: SyncClient, saved: dict[str, Any]) -> None:
    assert all(client.restore(each).execution_state == state for each, state in saved.items())
    assert client.tagged("named") is not None
    assert len(client.inbox("somebody")) == 1
    assert client.verify().ok


def old_items(raw: Raw, epoch: int) -> int:
    """How many records, rows and segments are sealed under a key of another epoch than this."""
    of_trees = {row.key.key: store_keys.stated_tree(row.row)[1] for row in map(_Entry, raw.rows(SPACE))}
    kids = [envelope.record_kid(found.data) for found in raw.records()]
    kids += [envelope.kid(row.value) for space in EVERY_SPACE if space != SPACE for _, row in raw.rows(space)]
    kids += [envelope.kid(raw.segment(info)) for info in raw.segments()]
    assert None not in kids
    return sum(
        (int.from_bytes(kid[4:], "big") if store_keys.is_of_store(kid) else of_trees[kid]) != epoch
        for kid in kids
        if kid is not None
    )


class _Entry:
    def __init__(self, entry: tuple[RowKey, Any]) -> None:
        self.key, self.row = entry


def test_everything_but_blobs_gets_new_keys(sealed: Store, tmp_path: Path):
    client, raw = sealed.client(), Raw.of(sealed)
    last = tell(client, tmp_path / "work")
    ids_ = [entry.checkpoint_id for session in client.session_ids() for entry in client.timeline(session, limit=None)]
    states = {id_: client.restore(id_) for id_ in ids_}
    blobs, before = raw.blobs(), raw.dump()
    assert client.key_status().old_epochs == ()
    status = client.rekey(data=True)
    assert (status.epoch, status.old_epochs, status.is_resealing) == (2, (1,), False)
    assert status.trees_current <= status.trees
    assert old_items(raw, 2) == 0
    assert raw.blobs() == blobs
    after = raw.dump()
    assert not {found.data for found in before[0]} & {found.data for found in after[0]}
    assert not {row.value for key, row in before[1] if key.space != SPACE} & {row.value for _, row in after[1]}
    assert not {data for _, data in before[2]} & {data for _, data in after[2]}
    for fresh in (client, sealed.client()):
        assert {id_: fresh.restore(id_) for id_ in states} == states
        assert fresh.verify().ok
    assert client.rekey(destroy_old=True).old_epochs == ()
    for fresh in (client, sealed.client()):
        assert {id_: fresh.restore(id_) for id_ in states} == states
        assert fresh.verify().ok
        fresh.gc()
    assert all(store_keys.stated_tree(row)[1] == 2 for key, row in raw.rows(SPACE) if key != MARKER)
    again = sealed.client()
    state = again.restore(last).execution_state
    later = again.save("a", session_id="later", execution_state=state)
    assert sealed.client().restore(later).execution_state == state


def test_a_process_with_old_keys_follows(sealed: Store):
    writers = [sealed.client() for _ in range(2)]
    saved = fill(writers[0])
    writers[1].latest("one")
    sealed.client().rekey(data=True)
    raw = Raw.of(sealed)
    for number, writer in enumerate(writers):
        for session in ("one", "fork"):
            state = {"said": number}
            saved[writer.save("a", session_id=session, execution_state=state)] = state
    assert old_items(raw, 2) == 0
    check(sealed.client(), saved)


def test_what_a_process_with_old_keys_writes_stays_readable_and_is_found_by_the_next_call(sealed: Store):
    stale = sealed.client()
    saved = fill(stale)
    sealed.client().rekey(data=True)
    state = {"list": list(range(100)), "session": "of its own"}
    late = stale.save("a", session_id="new", execution_state=state)
    raw = Raw.of(sealed)
    assert old_items(raw, 2) > 0
    check(sealed.client(), saved | {late: state})
    sealed.client().rekey(destroy_old=True)
    assert old_items(raw, 2) == 0
    check(sealed.client(), saved | {late: state})
    assert stale.restore(late).execution_state == state
    saved[stale.save("a", session_id="new", execution_state=[1])] = [1]
    check(sealed.client(), saved)


def test_epochs_follow_each_other_and_blobs_of_all_of_them_open(sealed: Store):
    client = sealed.client()
    saved = fill(client)
    for epoch in (2, 3, 4):
        assert client.rekey(data=True).epoch == epoch
        state = {"blob": f"of epoch {epoch} " * 2000}
        saved[client.save("a", session_id=f"epoch {epoch}", execution_state=state)] = state
        if epoch == 3:
            assert client.rekey(destroy_old=True).old_epochs == ()
    assert client.key_status().old_epochs == (3,)
    check(sealed.client(), saved)
    assert client.rekey(destroy_old=True).epoch == 4
    check(sealed.client(), saved)


# -- crashes ---------------------------------------------------------------------------------------------------------


class Died(BaseException):
    """The process has died: nothing below catches it."""


def die(backend: BlockingBackend, commit: int, *, is_done: bool, work: Callable[[SyncClient], object]) -> bool:
    """Does the work in a client that ends before, or right after, its nth commit; whether it ended so."""
    recorder = Recorder(backend)
    count = 0

    def before(commits: Sequence[Commit]) -> None:
        nonlocal count
        count += 1
        if count == commit:
            if is_done:
                recorder.inner.commit_all(commits)
            raise Died

    recorder.before_commit = before
    try:
        work(SyncClient(recorder, keys=NEW + RING))
    except Died:
        return True
    return False


def rotate(client: SyncClient) -> None:
    client.rekey(data=True)
    client.rekey(destroy_old=True)


def commits_of(sealed: Store) -> int:
    recorder = Recorder(sealed.backend())
    rotate(SyncClient(recorder, keys=NEW + RING))
    return recorder.calls["commit_all"]


def test_a_rotation_that_dies_at_any_commit_leaves_everything_readable_and_resumes(sealed: Store):
    saved = fill(sealed.client())
    count = commits_of(sealed)  # the first rotation; those that die are the next ones
    assert count > 15
    crashes = ((commit, is_done) for commit in itertools.count(1) for is_done in (False, True))
    if not EVERY_CRASH:
        whole = list(itertools.islice(crashes, 2 * count))
        crashes = iter([whole[0], whole[-1], *random.Random(sealed.kind).sample(whole, 6)])
    raw = Raw.of(sealed)
    for commit, is_done in crashes:
        if not die(sealed.backend(), commit, is_done=is_done, work=rotate):
            assert commit > count  # it has no more commits
            break
        with_both = SyncClient(sealed.backend(), keys=NEW + RING)
        check(with_both, saved)
        state = [commit, is_done]
        saved[with_both.save("a", session_id="one", execution_state=state)] = state
        status = with_both.key_status()
        rotate(SyncClient(sealed.backend(), keys=NEW + RING))
        finished = SyncClient(sealed.backend(), keys=NEW)
        check(finished, saved)
        now = finished.key_status()
        assert now.epoch - status.epoch == (0 if status.is_resealing else 1)  # it resumed, or began
        assert (now.old_epochs, now.is_resealing, now.trees_current) == ((), False, now.trees)
        assert old_items(raw, now.epoch) == 0


@pytest.mark.parametrize("is_done", [False, True])
def test_an_encryption_that_dies_at_any_commit_is_finished_by_the_next_one(sealed: Store, is_done: bool):
    with SyncClient.memory() as plain:
        saved = fill(plain)
        commit = 1  # each life gets a commit further, from where the one before died
        while die(sealed.backend(), commit, is_done=is_done, work=plain.copy_to):
            assert commit == 1 or SyncClient(sealed.backend(), keys=NEW + RING).verify().ok
            commit += 1
        assert commit > 3
        check(SyncClient(sealed.backend(), keys=NEW), saved)
        assert plain.verify().ok


@pytest.mark.parametrize("mistake", ["no key row", "destroyed first"])
def test_control_a_rotation_that_loses_data_is_found(sealed: Store, monkeypatch: pytest.MonkeyPatch, mistake: str):
    saved = fill(sealed.client())
    if mistake == "no key row":

        async def keep(self: bridge.SealedBridge, tree: bytes, key: store_keys.SealingKey, row: RowWrite) -> object:
            self.store.learn(tree, key)
            return key

        monkeypatch.setattr(bridge.SealedBridge, "_store_key_row", keep)
        monkeypatch.setattr(reseal, "PASSES", 1)
    else:

        async def nothing(*_: object) -> int:
            return 0

        monkeypatch.setattr(reseal, "_reseal_all", nothing)
    with suppress(StoreBusyError):
        rotate(SyncClient(sealed.backend(), keys=RING))
    monkeypatch.undo()
    with pytest.raises(KeyMissingError):
        check(sealed.client(), saved)


# -- writers ---------------------------------------------------------------------------------------------------------


def test_no_save_is_lost_beside_writers(sealed: Store):
    writers = [sealed.client() for _ in range(3)]
    saved = fill(writers[0])
    failures: list[BaseException] = []
    is_over = threading.Event()
    lock = threading.Lock()

    def write(number: int) -> None:
        client, items, rounds = writers[number], [{"n": 0}], 0
        try:
            while rounds < 5 or (rounds < 150 and not is_over.is_set()):
                rounds += 1
                session = f"writer {number}" if number else "shared"
                items = [*items, {"n": rounds, "text": "a text " * 20}] if rounds % 20 else [{"n": 0}]
                done = client.save("a", session_id=session, execution_state={"items": list(items)})
                with lock:
                    saved[done] = {"items": list(items)}
                if rounds % 4 == 0:
                    client.fork(done, session_id=f"fork {number} {rounds}")
                if rounds % 7 == 0:
                    client.tag(f"tag {number}", done, force=True)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        for epoch in (2, 3):
            rotating = sealed.client()
            while True:
                try:
                    assert rotating.rekey(data=True).epoch == epoch
                except StoreBusyError:
                    continue
                break
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    assert failures == []
    check(sealed.client(), saved)
    sealed.client().rekey(destroy_old=True)
    check(sealed.client(), saved)
    assert old_items(Raw.of(sealed), 3) == 0


@pytest.mark.parametrize("more", [1, 2, 20])
def test_elements_saved_where_gc_removed_others_are_not_overwritten(sealed: Store, more: int):
    """A segment is read, to be sealed again; then gc removes it, and a new session appends as many elements."""
    client = sealed.client()
    shared = [{"n": n, "text": "text " * 30} for n in range(40)]
    kept = client.save("a", session_id="s", execution_state={"m": shared})
    gone = client.save("a", session_id="s", execution_state={"m": [*shared, *({"gone": n} for n in range(more))]})
    client.expire(gone)
    rotating, recorder = sealed.recorded()
    saved: dict[str, Any] = {kept: {"m": shared}}

    def before_commit(commits: Sequence[Commit]) -> None:
        if len(saved) == 1 and any(commit.delete_segments for commit in commits):
            state = {"m": [*shared, *({"other": n} for n in range(more))]}
            other = sealed.client()
            assert other.gc().segments == 1
            other.fork(kept, session_id="fork")
            saved[other.save("a", session_id="fork", execution_state=state)] = state

    recorder.before_commit = before_commit
    assert rotating.rekey(data=True).old_epochs == (1,)
    assert len(saved) == 2
    assert old_items(Raw.of(sealed), 2) == 0
    fresh = sealed.client()
    assert {each: fresh.restore(each).execution_state for each in saved} == saved
    assert fresh.verify().ok


def test_a_run_goes_on_over_a_rotation(sealed: Store):
    paid: list[str] = []
    client = sealed.client()
    with client.run("job", agent_id="a") as run:
        run.effect("pay", lambda **_: paid.append("first"), key="1")
        sealed.client().rekey(data=True)
        run.effect("pay", lambda **_: paid.append("second"), key="2")
        run.save("end")
    with sealed.client().run("job", agent_id="a") as run:
        run.effect("pay", lambda **_: paid.append("again"), key="1")
        run.effect("pay", lambda **_: paid.append("again"), key="2")
    assert paid == ["first", "second"]


# -- who knows the old keys ------------------------------------------------------------------------------------------


def test_an_old_key_opens_nothing_and_after_destroy_old_forges_nothing(memory_store: Store):
    memory_store.is_sealed = True
    client, raw = memory_store.client(), Raw.of(memory_store)
    saved = fill(client)
    stolen = client._ctx.backend.store.keys
    victim = next(iter(saved))
    tree = client._ctx.backend.store.keys and ids.from_text(victim)
    kid = stolen.kid(tree, 1)
    [(_, row)] = [entry for entry in raw.rows(SPACE) if entry[0].key == kid]
    old_key, _, _ = stolen.open_tree_key(kid, row)
    found = raw.record(tree)
    client.rekey(data=True)

    scope = stolen.prefix + envelope.RECORD
    place = envelope.record_place(found.id, found.session, found.sequence)
    assert envelope.try_open_record({kid: old_key.cipher}, scope, place, found.data) is not None
    for record in raw.records():
        place = envelope.record_place(record.id, record.session, record.sequence)
        ciphers = {envelope.record_kid(record.data) or b"": old_key.cipher}
        assert envelope.try_open_record(ciphers, scope, place, record.data) is None
    client.rekey(destroy_old=True)
    raw.put_record(raw.record(tree), found.data)  # as good as forged: it is authentic under the old key
    with pytest.raises(KeyMissingError):
        memory_store.client().restore(victim)
    raw.put_row(RowKey(SPACE, kid, STORE), row.value)  # and the row of that key put back
    with pytest.raises(KeyMissingError):
        memory_store.client().restore(victim)
    with pytest.raises(KeyMissingError):
        memory_store.client().gc()


def test_old_keys_stay_while_something_can_not_be_opened(memory_store: Store):
    memory_store.is_sealed = True
    client, raw = memory_store.client(), Raw.of(memory_store)
    saved = fill(client)
    victim = raw.record(ids.from_text(next(iter(saved))))
    whole, damaged = victim.data, victim.data[:-6] + bytes((victim.data[-6] ^ 1,)) + victim.data[-5:]
    raw.put_record(victim, damaged)
    assert client.rekey(data=True).epoch == 2
    with pytest.raises(CorruptError, match="old keys stay"):
        client.rekey(destroy_old=True)
    raw.put_record(raw.record(victim.id), whole)
    client.rekey(destroy_old=True)
    check(memory_store.client(), saved)


def test_old_keys_stay_while_there_are_rows_of_an_unknown_space(memory_store: Store):
    memory_store.is_sealed = True
    client = memory_store.client()
    saved = fill(client)
    key = RowKey("tomorrow", b"key", STORE)
    run_inline(client._ctx.backend.commit(Commit(STORE, rows=[RowWrite(key, b"of a newer holdfast")])))
    with pytest.raises(ConflictError, match="newer holdfast"):
        client.rekey(data=True, destroy_old=True)
    assert client.key_status().old_epochs == (1,)
    check(memory_store.client(), saved)


def test_an_older_export_of_key_rows_takes_no_epoch_away(memory_store: Store, tmp_path: Path):
    memory_store.is_sealed = True
    client = memory_store.client()
    saved = fill(client)
    client.export_keys(tmp_path / "before")
    both = SyncClient(memory_store.backend(), keys=NEW + RING)
    both.rekey(data=True)
    both.export_keys(tmp_path / "between")
    with pytest.raises(ConflictError, match="newer keys"):
        SyncClient(memory_store.backend(), keys=RING).import_keys(tmp_path / "before")
    both.import_keys(tmp_path / "before")
    assert both.key_status().old_epochs == (1,)
    check(SyncClient(memory_store.backend(), keys=NEW), saved)
    stale = SyncClient(memory_store.backend(), keys=NEW)
    check(stale, saved)
    both.rekey(destroy_old=True)
    both.import_keys(tmp_path / "between")  # whoever destroyed them too early gets them back
    assert both.key_status().old_epochs == (1,)
    check(SyncClient(memory_store.backend(), keys=NEW), saved)


def test_old_keys_stay_if_another_process_begins_a_rotation_meanwhile(
    memory_store: Store, monkeypatch: pytest.MonkeyPatch
):
    """The data is sealed under an epoch that has just become an older one."""
    memory_store.is_sealed = True
    client, other = memory_store.client(), memory_store.client()
    saved = fill(client)
    client.rekey(data=True)
    refuse = reseal._refuse_unknown_rows

    async def begin_another(inner: Any) -> None:
        await refuse(inner)
        await reseal.change_marker(reseal.get_bridge(other._ctx), lambda _, secrets: (secrets.with_new_epoch(), True))

    monkeypatch.setattr(reseal, "_refuse_unknown_rows", begin_another)
    with pytest.raises(ConflictError, match="the old keys stay"):
        client.rekey(destroy_old=True)
    monkeypatch.undo()
    check(memory_store.client(), saved)
    memory_store.client().rekey(data=True, destroy_old=True)
    check(memory_store.client(), saved)
