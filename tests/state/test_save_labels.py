"""A tag and a pin that come with a checkpoint: all of it is there, or nothing."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from stores import Store

from holdfast import ConflictError, StoreError, SyncClient, UsageError
from holdfast.backends.port import Commit, RowWrite
from holdfast.format.rows import head, hold
from holdfast.format.rows.hold import TagRow
from holdfast.model import ids

pytestmark = pytest.mark.every_store

SOME_ID = "01939c5e-7c1b-7000-8a2f-0c4c1d9be2f1"


@pytest.fixture(params=["sync", "async"])
def save(request: pytest.FixtureRequest, shared_store: Store) -> Any:
    """`save` of a new client of either kind."""
    if request.param == "sync":
        return lambda *given, **named: shared_store.client().save(*given, **named)

    async def call(*given: Any, **named: Any) -> str:
        async with shared_store.async_client() as client:
            return await client.save(*given, **named)

    return lambda *given, **named: asyncio.run(call(*given, **named))


@pytest.fixture
def looker(shared_store: Store) -> SyncClient:
    return shared_store.client()


class TestWithTheCheckpoint:
    def test_it_is_tagged(self, save: Any, looker: SyncClient) -> None:
        saved = save("a", session_id="s", execution_state={"n": 1}, tag="v1")
        tag = looker.tagged("v1")
        assert tag is not None
        assert (tag.checkpoint_id, [one.name for one in looker.tags()]) == (saved, ["v1"])
        assert looker.restore("v1").execution_state == {"n": 1}
        assert looker.get(saved).metadata == {}
        with pytest.raises(ConflictError, match="is tagged 'v1'"):
            looker.expire(saved)

    def test_it_is_pinned(self, save: Any, looker: SyncClient) -> None:
        saved = save("a", session_id="s", pin=True)
        assert [one.checkpoint_id for one in looker.pins()] == [saved]
        with pytest.raises(ConflictError, match="is pinned"):
            looker.expire(saved)

    def test_it_is_both(self, save: Any, looker: SyncClient) -> None:
        saved = save("a", session_id="s", tag="v1", pin=True)
        assert looker.untag("v1") is True
        with pytest.raises(ConflictError, match="is pinned"):
            looker.expire(saved)
        assert looker.unpin(saved) is True
        assert looker.expire(saved) is True

    def test_by_one_commit(self, shared_store: Store) -> None:
        client, recorder = shared_store.recorded()
        client.save("a", session_id="s")
        recorder.forget()
        client.save("a", session_id="s", tag="v1", pin=True)
        assert len(recorder.commits) == 1
        assert recorder.commits[0].record is not None

    def test_neither_is_there_if_the_commit_fails(self, shared_store: Store) -> None:
        client, recorder = shared_store.recorded()

        def fail(_commits: object) -> None:
            raise StoreError("the disk is full")

        recorder.before_commit = fail
        with pytest.raises(StoreError, match="disk is full"):
            client.save("a", session_id="s", tag="v1", pin=True)
        recorder.before_commit = None
        assert (client.sessions(), client.tags(), client.pins()) == ([], [], [])

    def test_with_files(self, sqlite_store: Store, tmp_path: Any) -> None:
        client = sqlite_store.client()
        (place := tmp_path / "work").mkdir()
        (place / "file").write_text("one")
        saved = client.save("a", session_id="s", workspace=place, tag="v1", pin=True)
        assert client.resolve("v1") == client.pins()[0].checkpoint_id == saved
        assert client.read_file("v1", "file") == b"one"

    def test_undone_each_by_itself(self, looker: SyncClient) -> None:
        first = looker.save("a", session_id="s", tag="v1")
        saved = looker.save("a", session_id="s", tag="v1", move_tag=True, pin=True)
        assert [one.kind for one in looker.operations()] == ["tag", "pin", "tag"]
        looker.undo()
        assert looker.resolve("v1") == first
        assert [one.checkpoint_id for one in looker.pins()] == [saved]
        looker.undo()
        assert looker.pins() == []
        assert looker.latest("s").checkpoint_id == saved
        looker.redo()
        assert [one.checkpoint_id for one in looker.pins()] == [saved]


class TestATagThatStandsElsewhere:
    def test_refuses_the_save(self, save: Any, looker: SyncClient) -> None:
        first = save("a", session_id="s", tag="v1")
        with pytest.raises(
            ConflictError, match=f"tag 'v1' stands at {first} already. `move_tag=True` moves it .*Nothing was"
        ):
            save("a", session_id="s", tag="v1", pin=True)
        with pytest.raises(ConflictError):
            save("a", session_id="other", tag="v1")
        assert (looker.latest("s").checkpoint_id, looker.resolve("v1"), looker.pins()) == (first, first, [])
        assert [one.session_id for one in looker.sessions()] == ["s"]

    def test_moves_if_it_may(self, save: Any, looker: SyncClient) -> None:
        first = save("a", session_id="s", tag="v1")
        second = save("a", session_id="s", tag="v1", move_tag=True)
        assert looker.resolve("v1") == second
        assert looker.expire(first) is True  # the tag has let it go
        other = save("a", session_id="other", tag="v1", move_tag=True)  # of another tree
        assert [(one.name, one.checkpoint_id) for one in looker.tags()] == [("v1", other)]
        assert looker.verify().ok

    def test_counts_as_absent_if_its_checkpoint_is_not_there(self, shared_store: Store, save: Any) -> None:
        """What a save that was refused may leave on a store of several nodes."""
        looker, ghost = shared_store.client(), ids.from_text(SOME_ID)
        key = hold.tag_key(head.session_key("v1"))
        left = RowWrite(key, TagRow(ghost, ghost, 1).pack(key))
        assert shared_store.backend().commit_all([Commit(ghost, rows=[left])]) == [None]
        assert looker.tagged("v1") is None
        saved = save("a", session_id="s", tag="v1")
        assert looker.resolve("v1") == saved

    def test_is_seen_where_another_was_first_by_a_moment(self, shared_store: Store) -> None:
        client, recorder = shared_store.recorded()
        other = shared_store.client()
        client.save("a", session_id="s")

        def meanwhile(_commits: object) -> None:
            recorder.before_commit = None
            other.save("b", session_id="other", tag="v1")

        recorder.before_commit = meanwhile
        with pytest.raises(ConflictError, match="stands at"):
            client.save("a", session_id="s", tag="v1")
        assert len(client.timeline("s")) == 1
        assert other.get("v1").session_id == "other"

    def test_is_given_to_one_of_many(self, shared_store: Store) -> None:
        outcomes: list[str | None] = []

        def race(number: int) -> None:
            try:
                outcomes.append(shared_store.client().save("a", session_id=f"s{number}", tag="v1"))
            except ConflictError:
                outcomes.append(None)

        threads = [threading.Thread(target=race, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        [winner] = [one for one in outcomes if one is not None]
        looker = shared_store.client()
        assert (len(outcomes), looker.resolve("v1")) == (6, winner)
        assert [one.head.checkpoint_id for one in looker.sessions()] == [winner]

    def test_leaves_its_former_place_even_if_that_fails_at_first(self, shared_store: Store) -> None:
        client, recorder = shared_store.recorded()
        first = client.save("a", session_id="s", tag="v1")

        def fail_after_the_save(commits: Any) -> None:
            if commits[0].record is None:
                raise StoreError("the store is gone")

        recorder.before_commit = fail_after_the_save
        with pytest.raises(StoreError, match="is gone") as failure:
            client.save("a", session_id="s", tag="v1", move_tag=True)
        recorder.before_commit = None
        saved = failure.value.checkpoint_id
        assert client.resolve("v1") == client.latest("s").checkpoint_id == saved
        assert client.save("a", session_id="s", tag="v1", move_tag=True, checkpoint_id=saved) == saved
        assert client.expire(first) is True


class TestRepetitions:
    def test_are_no_op(self, save: Any, looker: SyncClient) -> None:
        for _ in range(2):
            assert save("a", session_id="s", checkpoint_id=SOME_ID, tag="v1", pin=True) == SOME_ID
        assert looker.resolve("v1") == looker.pins()[0].checkpoint_id == SOME_ID
        assert len(looker.timeline("s")) == 1

    def test_make_good_what_the_first_was_not_told(self, save: Any, looker: SyncClient) -> None:
        save("a", session_id="s", checkpoint_id=SOME_ID)
        save("a", session_id="s", checkpoint_id=SOME_ID, tag="v1", pin=True)
        assert looker.resolve("v1") == looker.pins()[0].checkpoint_id == SOME_ID


class TestRefusals:
    @pytest.mark.parametrize(
        ("keyword", "meant"),
        [
            ("step", "step_index' or 'step_name"), ("state", "execution_state"), ("session", "session_id"),
            ("parent", "parent_id"), ("agent", "agent_id"), ("ttl", "ttl_seconds"), ("tags", "tag"), ("pins", "pin"),
            ("pinned", "pin"), ("movetag", "move_tag"), ("sessionId", "session_id"), ("ttl_second", "ttl_seconds"),
            ("checkpoint", "checkpoint_id"), ("head", "expect_head"), ("Tag", "tag"), ("Session", "session_id"),
        ],
    )  # fmt: skip
    def test_of_near_misses_name_what_is_meant(self, quick: SyncClient, keyword: str, meant: str) -> None:
        with pytest.raises(UsageError, match=f"unknown keyword '{keyword}': did you mean '{meant}'\\?"):
            quick.save("a", session_id="s", **{keyword: 1})
        assert quick.sessions() == []

    def test_of_what_is_no_tag_or_no_answer(self, quick: SyncClient) -> None:
        for given, words in (
            ({"tag": "0199c0de"}, "can't be a tag"),
            ({"tag": ""}, "can't be a tag"),
            ({"tag": 5}, "tag is a int: it must be a str"),
            ({"pin": "before the merge"}, r"pin is 'before the merge'.*client\.pin\(id, note\)"),
            ({"tag": "v1", "move_tag": 1}, "move_tag is 1: it must be True or False"),
            ({"move_tag": True}, "give both"),
        ):
            with pytest.raises(UsageError, match=words):
                quick.save("a", session_id="s", **given)
        assert quick.sessions() == []
