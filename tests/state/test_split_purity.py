"""The split is a pure function of the value; the checksum binds the place in the tree."""

from __future__ import annotations

import copy
import itertools

import pytest
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machine_values import elements, large, stretches
from stores import BACKENDS, Clock, Store, messages

from holdfast import SyncClient
from holdfast.format.state import record
from holdfast.model import ids


def steered(client: SyncClient, clock: Clock) -> SyncClient:
    """A client whose ids and times are the same in every run."""
    numbers = itertools.count(1)
    clock.rules(client)
    client._ctx.new_id = lambda tag=None: ids.from_text(f"01939c5e-7c1b-7000-8a2f-{next(numbers):012x}")
    return client


def root_of(client: SyncClient, id_: str) -> bytes:
    [found] = client._ctx.backend.backend.records([ids.from_text(id_)])
    return record.unpack(client._ctx.codec, found.data).root


HISTORY = [
    {"m": []},
    {"m": messages(7)},
    {"m": messages(8), "b": "x" * 4095},
    {"m": messages(30), "b": "x" * 4096, "v": {"m": messages(9)}},
    {"m": messages(31), "b": "x" * 4096, "v": {"m": messages(10)}},
    {"m": [*messages(10), "edited", *messages(20, 11)], "b": b"x" * 4096, "v": {"m": messages(12)}},
    {"m": messages(200), "b": b"x" * 4096, "v": {"m": []}},
    {"m": messages(5)},
]


def checksums(store: Store, *, cold: bool) -> list[str]:
    """The checksums of a history, saved by one client that remembers or by a new one each time."""
    clock = Clock()
    client = steered(store.client(), clock)
    new_id = client._ctx.new_id
    sums = []
    for state in HISTORY:
        if cold:
            client = steered(store.client(), clock)
            client._ctx.new_id = new_id
        clock.forward(1)
        sums.append(client.restore(client.save("a", session_id="s", execution_state=state)).checksum)
    return sums


def test_checksums_are_the_same_on_every_backend_cold_and_warm(tmp_path):
    seen = set()
    for kind, cold in itertools.product(BACKENDS, (False, True)):
        store = Store(kind, tmp_path / f"{kind}{cold}")
        store.where.mkdir()
        seen.add(tuple(checksums(store, cold=cold)))
        store.close()
    assert len(seen) == 1
    assert len(set(next(iter(seen)))) == len(HISTORY)


@settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
@given(
    old=st.lists(stretches, min_size=1, max_size=3),
    new=stretches,
    text=large,
    edit=st.tuples(st.integers(0, 60), st.integers(0, 60), st.lists(elements, max_size=3)),
)
def test_the_root_does_not_depend_on_history_or_memory(old, new, text, edit):
    """A state reached by appends and edits has the digest of the same state saved at once."""
    from pathlib import Path

    store = Store("memory", Path())
    client = store.client()
    items: list = []
    saved = ""
    for stretch in [*old, new]:
        items = [*items, *copy.deepcopy(stretch)]
        saved = client.save("a", session_id="s", execution_state={"m": items, "t": text})
    at, until, between = edit
    items = [*items[:at], *between, *items[max(at, until) :]]
    edited = client.save("a", session_id="s", execution_state={"m": items, "t": text})
    fresh = store.client()
    at_once = fresh.save("a", session_id="other", execution_state={"m": copy.deepcopy(items), "t": text})
    assert root_of(client, edited) == root_of(client, at_once)
    assert root_of(client, saved) == root_of(
        client,
        fresh.save("a", session_id="third", execution_state={"m": [e for o in [*old, new] for e in o], "t": text}),
    )


@pytest.mark.parametrize("count", [7, 8, 9, 10, 40])
def test_a_declared_append_gives_the_root_of_the_whole_list(store: Store, count: int):
    client = store.client()
    client.save("a", session_id="s", execution_state={"m": messages(count)})
    told = client.save("a", session_id="s", append={"m": messages(3, count)})
    whole = client.save("a", session_id="t", execution_state={"m": messages(count + 3)})
    assert root_of(client, told) == root_of(client, whole)


def test_the_order_of_appends_does_not_depend_on_other_writers(store: Store):
    """A save that met a conflict, and was planned anew, is the same content: its repetition is a no-op."""
    id_ = "01939c5e-7c1b-7000-8a2f-0c4c1d9be2f1"
    arguments = {"session_id": "s", "execution_state": {"n": 1}, "append": {"m": [2], "+v.m": [3], "+a": [4]}}
    for start in (1, 30):
        client, other = store.client(), store.client()
        arguments["session_id"] = f"s{start}"
        client.save("a", session_id=f"s{start}", execution_state={"m": messages(start)})
        undisturbed = client.save("a", **arguments)
        client.rollback(f"s{start}", to=client.get(undisturbed).parent_id)
        client.latest(session_id=f"s{start}")
        client.save("a", session_id=f"s{start}", execution_state={"m": messages(start)})
        other.save("b", session_id=f"s{start}", execution_state={"m": messages(start)})
        disturbed = client.save("a", **arguments, checkpoint_id=id_[:-1] + str(start % 10))
        assert list(client.restore(disturbed).execution_state) == ["n", "m", "v", "a"]
        assert root_of(client, disturbed) == root_of(client, undisturbed)
        assert client.save("a", **arguments, checkpoint_id=disturbed) == disturbed


class TestTheChecksumBinds:
    def stored(self, client: SyncClient, id_: str) -> record.StoredRecord:
        [found] = client._ctx.backend.backend.records([ids.from_text(id_)])
        return record.unpack(client._ctx.codec, found.data)

    def test_the_parents_checksum_and_the_sequence_number(self, client: SyncClient):
        first, second = (client.save("a", session_id="s", execution_state={"x": 1}) for _ in range(2))
        parent, child = self.stored(client, first), self.stored(client, second)
        assert child.header["psum"] == parent.checksum
        assert (parent.header["seq"], child.header["seq"]) == (1, 2)
        assert parent.root == child.root
        assert parent.checksum != child.checksum

    def test_what_was_there_at_commit_not_at_planning(self, store: Store):
        """On a conflict, the checkpoint is linked to the head that was first, and numbered after it."""
        client, recorder = store.recorded()
        other = store.client()
        client.save("a", session_id="s", execution_state={"m": messages(20)})
        theirs = []

        def meanwhile(commits) -> None:
            if len(theirs) == 3:
                recorder.before_commit = None
            else:
                theirs.append(other.save("b", session_id="s", execution_state={"m": messages(21 + len(theirs))}))

        recorder.before_commit = meanwhile
        mine = self.stored(client, client.save("a", session_id="s", execution_state={"m": messages(40)}))
        assert mine.parent == ids.from_text(theirs[-1])
        assert mine.header["psum"] == self.stored(client, theirs[-1]).checksum
        assert mine.sequence == 5
        assert client.restore(ids.to_text(mine.id)).execution_state == {"m": messages(40)}
        assert client.verify().ok

    def test_every_field(self, memory_store: Store):
        """Two checkpoints that differ in one thing differ in their checksums."""
        base = {"agent_id": "a", "session_id": "s", "execution_state": {"x": 1}, "context": {}}
        others = [
            {"agent_id": "b"}, {"session_id": "t"}, {"execution_state": {"x": 2}}, {"execution_state": {"x": 1.0}},
            {"context": {"y": 1}}, {"framework": "crewai"}, {"step_index": 3}, {"step_name": "n"}, {"ttl_seconds": 5},
            {"note": 1}, {"tasks": []}, {"app_version": "1"},
        ]  # fmt: skip
        sums = set()
        for other in [{}, *others]:
            client = steered(SyncClient.memory(), Clock())
            sums.add(client.restore(client.save(**(base | other))).checksum)
        assert len(sums) == len(others) + 1

    def test_an_expired_parent_ends_the_chain_and_is_reported(self, client: SyncClient):
        saved = [client.save("a", session_id="s") for _ in range(4)]
        assert client.verify().ended_chains == 0
        client.expire(saved[1])
        report = client.verify()
        assert (report.ok, report.checked, report.expired, report.ended_chains) == (True, 3, 1, 1)
