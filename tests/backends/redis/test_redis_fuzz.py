"""Random commits, carried out by the scripts and by the memory backend: the same outcomes, and the same store."""

from __future__ import annotations

import itertools
import os

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from holdfast.backends.bridge.blocking import blocking
from holdfast.backends.memory import MemoryBackend
from holdfast.backends.port import (
    STORE,
    Commit,
    CommitConflict,
    RecordWrite,
    RowKey,
    RowWrite,
    SegmentDelete,
    SegmentWrite,
)
from holdfast.backends.redis import keys, open_redis
from holdfast.testing.harness import OTHER_TREE, TREE, hash_bytes, record_id
from holdfast.testing.store_dump import StoreDump, dump

pytestmark = pytest.mark.servers

SPACES = ("head", "pin")
SHARDS = 5
EXAMPLES = 2000 if os.environ.get("HOLDFAST_SOAK") else 60
TREES = (TREE, OTHER_TREE)
KEYS = (b"", b"a", b"a\x00", b"a\x00\x01b", b"\xff", b"b" * 40)
CONTENTS = (b"", b"1", b"12", b"x" * 300)
BLOBS = (b"", b"one", b"two" * 100)
# Ids that users made are of any shard. Both trees may want one, but only of its own records does a tree speak.
MADE = {TREE: [bytes(16), b"\x07" * 16], OTHER_TREE: [b"\xff" * 16, b"\x09" * 16]}
WANTED_BY_BOTH = [b"\x03" * 16, b"\x05" * 16]

contents = st.sampled_from(CONTENTS)
few = st.integers(0, 4)
_stores = itertools.count()
PHASES = tuple(phase for phase in Phase if phase is not Phase.explain)  # which takes minutes with a server


def lists(strategy: st.SearchStrategy, most: int = 2, unique_by=None) -> st.SearchStrategy:
    return st.lists(strategy, max_size=most, unique_by=unique_by)


def ids_of(tree: bytes) -> st.SearchStrategy[bytes]:
    return st.sampled_from([*(record_id(number, tree) for number in range(4)), *MADE[tree]])


@st.composite
def records(draw: st.DrawFn, tree: bytes) -> RecordWrite:
    # A session is of one tree: where there are shards, numbers are compared within one of them.
    session = draw(st.sampled_from((b"s", b"\x00t"))) + tree[8:12]
    replaces = draw(st.none() | contents)
    id_ = draw(ids_of(tree) if replaces is not None else ids_of(tree) | st.sampled_from(WANTED_BY_BOTH))
    return RecordWrite(id_, session, draw(st.integers(0, 5)), draw(contents), replaces=replaces)


@st.composite
def run_writes(draw: st.DrawFn, tree: bytes) -> list[SegmentWrite]:
    """Writes to some logs of the tree; of one log, each begins where the one before ended."""
    writes = []
    for log in draw(st.lists(st.sampled_from(logs_of(tree)), max_size=2, unique=True)):
        tail = draw(st.integers(0, 6))
        first = draw(st.integers(0, tail) | st.just(tail))
        for _ in range(draw(st.integers(1, 2))):
            length = draw(st.integers(1, 3))
            writes.append(SegmentWrite(log, first, length, draw(contents), tail))
            first = tail = first + length
    return writes


def logs_of(tree: bytes) -> list[int]:
    return [1, 2**40] if tree == TREE else [2, 3]


@st.composite
def run_deletes(draw: st.DrawFn, tree: bytes) -> SegmentDelete:
    first, length = draw(few), draw(st.integers(1, 3))
    cut = draw(st.integers(0, length))
    pieces = [(first, cut, draw(contents)), (first + cut, length - cut, draw(contents))]
    kept = tuple(piece for piece in pieces if piece[1] and draw(st.booleans()))
    return SegmentDelete(draw(st.sampled_from(logs_of(tree))), first, length, kept)


@st.composite
def row_writes(draw: st.DrawFn, tree: bytes) -> RowWrite:
    key = RowKey(draw(st.sampled_from(SPACES)), draw(st.sampled_from(KEYS)), tree)
    return RowWrite(key, draw(st.none() | contents), draw(st.integers(-1, 2)), draw(st.none() | contents))


@st.composite
def commits(draw: st.DrawFn) -> Commit:
    tree = draw(st.sampled_from(TREES))
    if draw(st.integers(0, 5)) == 0:  # the rows of the whole store go by themselves: with others they may go before
        return Commit(STORE, rows=draw(lists(row_writes(STORE), 3, lambda write: write.key)))
    new = draw(lists(records(tree), 3, lambda write: write.id))
    numbers = [(write.session, write.sequence) for write in new if write.replaces is None]
    if len(set(numbers)) < len(numbers):
        new = new[:1]
    has_first = bool(new) and draw(st.booleans())
    places = st.builds(RowKey, st.sampled_from(SPACES), st.sampled_from(KEYS), st.just(tree))
    return Commit(
        tree,
        record=new[0] if has_first else None,
        more_records=new[1:] if has_first else new,
        segments=draw(run_writes(tree)),
        blobs={hash_bytes(data): data for data in draw(lists(st.sampled_from(BLOBS)))},
        rows=draw(lists(row_writes(tree), 2, lambda write: write.key)),
        require=draw(st.just([]) | lists(st.tuples(ids_of(tree), contents), 1)),
        require_rows=draw(st.just([]) | lists(st.tuples(places, st.integers(0, 2)), 1)),
        delete_records=draw(lists(st.tuples(ids_of(tree), contents))),
        delete_segments=draw(lists(run_deletes(tree))),
        delete_blobs={hash_bytes(data): 2**62 for data in draw(lists(st.sampled_from(BLOBS), 1))},
    )


def kinds(outcomes: list[BaseException | None]) -> list[object]:
    for outcome in outcomes:
        assert outcome is None or isinstance(outcome, CommitConflict), outcome
    return [outcome and (outcome.kind, outcome.detail) for outcome in outcomes]


def content(snapshot: StoreDump) -> tuple[object, ...]:
    """Everything but the positions themselves: of these the order counts, since numbers may be left out."""
    order = sorted(snapshot.positions, key=snapshot.positions.__getitem__)
    return snapshot.records, order, snapshot.sessions, snapshot.segments, snapshot.blobs, snapshot.rows


@pytest.fixture(scope="module", params=(1, SHARDS))
def shards(request: pytest.FixtureRequest) -> int:
    return request.param


def test_the_two_trees_are_in_two_shards():
    assert len({keys.shard_of(id_, SHARDS) for id_ in (STORE, *TREES)}) == 3
    assert keys.shard_of(MADE[TREE][0], SHARDS) != keys.shard_of(TREE, SHARDS)


@settings(max_examples=EXAMPLES, deadline=None, phases=PHASES, suppress_health_check=list(HealthCheck))
@given(batches=st.lists(st.lists(commits(), min_size=1, max_size=4), min_size=1, max_size=8))
def test_random_commits(redis_url: str, shards: int, batches: list[list[Commit]]):
    prefix = f"fuzz:{os.getpid()}:{shards}:{next(_stores)}"
    backend = blocking(open_redis(redis_url, prefix=prefix, shards=shards))
    oracle = MemoryBackend()
    try:
        for batch in batches:
            ours, theirs = kinds(backend.commit_all(batch)), kinds(oracle.commit_all(batch))
            if shards == 1:
                assert ours == theirs
            else:  # of several conditions that don't hold, another may be found first
                assert [outcome is None for outcome in ours] == [outcome is None for outcome in theirs]
        assert content(dump(backend, SPACES)) == content(dump(oracle, SPACES))
        for tree, part, after in itertools.product((None, *TREES), KEYS[:3], (None, *KEYS[:4])):
            asked = {"tree": tree, "prefix": part, "after": after, "limit": 3}
            assert backend.scan("head", **asked) == oracle.scan("head", **asked)
    finally:
        backend.close()
