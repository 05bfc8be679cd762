"""What crosses shards: positions, ids that users made, copies of blobs, rows of the whole store."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from holdfast.backends.port import ABSENT, STORE, Commit, CommitConflict, RecordWrite, RowKey, RowWrite
from holdfast.backends.redis import keys, open_redis
from holdfast.backends.redis.backend import RedisBackend
from holdfast.backends.redis.change_positions import Positions
from holdfast.testing.harness import OTHER_TREE, TREE, hash_bytes, head, record

pytestmark = pytest.mark.servers

SHARDS = 5
CHOSEN = b"\x07" * 16  # an id that a user made


@pytest.fixture
def backend(redis_url: str, tmp_path) -> RedisBackend:
    return open_redis(redis_url, prefix=f"shards-{abs(hash(tmp_path))}", shards=SHARDS)


def run(backend: RedisBackend, story: Coroutine[Any, Any, None]) -> None:
    async def told() -> None:
        try:
            await story
        finally:
            await backend.close()

    asyncio.run(told())


async def committed(backend: RedisBackend, *commits: Commit) -> list[BaseException | None]:
    return await backend.commit_all(commits)


def test_what_is_told_here_crosses_shards():
    shards = [keys.shard_of(id_, SHARDS) for id_ in (STORE, TREE, OTHER_TREE)]
    assert len(set(shards)) == 3
    assert keys.shard_of(CHOSEN, SHARDS) not in shards[1:]


class TestPositions:
    def test_readers_stop_below_a_commit_that_is_not_decided(self, backend):
        async def story() -> None:
            await committed(backend, Commit(TREE, record(1)))
            positions = Positions(backend._calls, await backend._open_store())
            [note] = await positions.draw([(1, 3)])
            await committed(backend, Commit(OTHER_TREE, record(2, tree=OTHER_TREE)))
            assert [change.position for change in await backend.changes(0, 9)] == [1]
            assert await backend.last_change() == 1
            await positions.close_notes([note])
            assert [change.position for change in await backend.changes(0, 9)] == [1, 3]
            assert await backend.last_change() == 3

        run(backend, story())

    def test_a_writer_that_died_holds_readers_up_for_a_while_only(self, backend):
        async def story() -> None:
            impatient = Positions(backend._calls, await backend._open_store(), patience=0.0)
            await impatient.draw([(2, 3)])  # and dies
            await committed(backend, Commit(TREE, record(1)))
            assert [change.position for change in await backend.changes(0, 9)] == [3]
            assert await backend.last_change() == 3

        run(backend, story())

    def test_a_writer_that_was_taken_for_dead_draws_again_and_nothing_appears_behind_a_reader(
        self, backend, monkeypatch
    ):
        """Between drawing and committing, a reader decides that its patience is over."""
        seen: list[int] = []

        async def story() -> None:
            reading = await backend._open_store()
            draw = Positions.draw

            async def overtaken(self: Positions, commits: Any) -> Any:
                notes = await draw(Positions(backend._calls, reading, patience=0.0), commits)
                if not seen:
                    seen.append(await backend.last_change())
                return notes

            monkeypatch.setattr(Positions, "draw", overtaken)
            assert await committed(backend, Commit(TREE, record(1))) == [None]
            monkeypatch.undo()
            assert seen == [1]
            assert [change.position for change in await backend.changes(0, 9)] == [2]

        run(backend, story())


class TestIdsThatUsersMade:
    def test_are_found_and_taken_once_in_all_trees(self, backend):
        async def story() -> None:
            first, second = RecordWrite(CHOSEN, b"s", 1, b"one"), RecordWrite(CHOSEN, b"t", 1, b"two")
            assert await committed(backend, Commit(TREE, first)) == [None]
            [outcome] = await committed(backend, Commit(OTHER_TREE, second))
            assert isinstance(outcome, CommitConflict)
            assert outcome.kind == "record"
            [found] = await backend.records([CHOSEN])
            assert found is not None
            assert found.data == b"one"

        run(backend, story())

    def test_a_note_of_a_commit_that_was_refused_keeps_nobody_out(self, backend):
        async def story() -> None:
            refused = Commit(TREE, RecordWrite(CHOSEN, b"s", 1, b"one"), rows=[head(b"x", 7)])
            assert isinstance((await committed(backend, refused))[0], CommitConflict)
            assert await backend.records([CHOSEN]) == [None]
            for tree in (OTHER_TREE, TREE):  # back and forth
                write = RecordWrite(CHOSEN, b"t" + tree, 1, tree)
                assert await committed(backend, Commit(tree, write)) == [None]
                [found] = await backend.records([CHOSEN])
                assert found is not None
                assert found.data == tree
                assert await committed(backend, Commit(tree, delete_records=[(CHOSEN, tree)])) == [None]

        run(backend, story())

    def test_an_id_may_go_to_its_own_shard_after_it_was_noted_elsewhere(self, backend):
        async def story() -> None:
            own = record(1)  # its id is of TREE
            refused = Commit(OTHER_TREE, own._replace(session=b"t"), rows=[head(b"x", 7, OTHER_TREE)])
            assert isinstance((await committed(backend, refused))[0], CommitConflict)
            assert await committed(backend, Commit(TREE, own)) == [None]
            [outcome] = await committed(backend, Commit(OTHER_TREE, own._replace(session=b"t")))
            assert isinstance(outcome, CommitConflict)

        run(backend, story())

    def test_of_writers_in_many_trees_one_gets_it(self, backend):
        async def story() -> None:
            trees = [bytes(8) + bytes((0x80, 0, 0, number)) + bytes(4) for number in range(0, 200, 7)]
            assert len({keys.shard_of(tree, SHARDS) for tree in trees}) == SHARDS
            tried = [committed(backend, Commit(tree, RecordWrite(CHOSEN, tree, 1, tree))) for tree in trees]
            outcomes = [outcome for [outcome] in await asyncio.gather(*tried)]
            won = [tree for tree, outcome in zip(trees, outcomes, strict=True) if outcome is None]
            assert len(won) <= 1
            found = await backend.page_records(None, 99)
            assert [item.data for item in found] == won
            assert await backend.records([CHOSEN]) == [found[0] if won else None]

        run(backend, story())


class TestBlobs:
    def test_a_copy_that_was_written_again_survives_a_decision_about_another(self, backend):
        """Shards' clocks may differ: a deletion is about the copy that was listed, in its shard."""

        async def story() -> None:
            hash_ = hash_bytes(b"b")
            blob = {hash_: b"b"}
            await committed(backend, Commit(TREE, blobs=blob), Commit(OTHER_TREE, blobs=blob))
            [listed] = await backend.page_blobs(None, 9)
            assert listed.written_at_us % SHARDS in {keys.shard_of(tree, SHARDS) for tree in (TREE, OTHER_TREE)}
            later = OTHER_TREE if listed.written_at_us % SHARDS == keys.shard_of(TREE, SHARDS) else TREE
            await committed(backend, Commit(later, blobs=blob))
            await committed(backend, Commit(STORE, delete_blobs={hash_: listed.written_at_us + 1}))
            assert await backend.blobs([hash_]) == [b"b"]
            [left] = await backend.page_blobs(None, 9)
            assert left.written_at_us % SHARDS == keys.shard_of(later, SHARDS)
            await committed(backend, Commit(STORE, delete_blobs={hash_: left.written_at_us + 1}))
            assert await backend.blobs([hash_]) == [None]

        run(backend, story())


class TestRowsOfTheStore:
    def test_are_deleted_after_the_rest_so_that_a_refused_commit_leaves_them(self, backend):
        async def story() -> None:
            session = RowKey("session", b"s")
            await committed(backend, Commit(TREE, rows=[head(b"1", ABSENT), RowWrite(session, TREE, ABSENT)]))
            gone = [head(None, 9), RowWrite(session, None, 1)]  # the head has moved
            assert isinstance((await committed(backend, Commit(TREE, rows=gone)))[0], CommitConflict)
            assert (await backend.rows([session]))[0] is not None
            gone = [head(None, 1), RowWrite(session, None, 9)]  # the session has another version
            assert isinstance((await committed(backend, Commit(TREE, rows=gone)))[0], CommitConflict)
            assert (await backend.rows([gone[0].key]))[0] is not None
            gone = [head(None, 1), RowWrite(session, None, 1)]
            assert await committed(backend, Commit(TREE, rows=gone)) == [None]
            assert await backend.rows([session, gone[0].key]) == [None, None]

        run(backend, story())
