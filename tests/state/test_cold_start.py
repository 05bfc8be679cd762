"""Cold start is the normal case: what a process does not remember costs hashing, not reading."""

from __future__ import annotations

import asyncio
import threading

import pytest
from stores import Recorder, Store, messages

from holdfast import Client, ConflictError, StoreError
from holdfast.backends.port import Span
from holdfast.model import ids

pytestmark = pytest.mark.every_store


def test_an_append_is_proven_by_hash_without_reading_a_run(store: Store):
    store.client().save("a", session_id="s", execution_state={"m": messages(200), "v": {"n": messages(100)}})
    cold, recorder = store.recorded()
    grown = {"m": messages(201), "v": {"n": messages(103)}}
    saved = cold.save("a", session_id="s", execution_state=grown)
    assert recorder.calls["segments"] == recorder.calls["blobs"] == 0
    assert recorder.written_bytes() < 4 * 700
    assert cold.restore(saved).execution_state == grown


def test_an_unchanged_state_is_proven_and_nothing_is_written(store: Store):
    state = {"m": messages(200), "b": "x" * 9000, "other": {str(i): "y" * 20 for i in range(30)}}
    store.client().save("a", session_id="s", execution_state=state)
    cold, recorder = store.recorded()
    saved = cold.save("a", session_id="s", execution_state=state)
    assert recorder.calls["segments"] == recorder.calls["blobs"] == 0
    assert recorder.written_bytes() == 0
    assert cold.restore(saved).execution_state == state


def test_a_warm_append_reads_nothing_at_all(store: Store):
    client, recorder = store.recorded()
    client.save("a", session_id="s", execution_state={"m": messages(50)})
    recorder.forget()
    client.save("a", session_id="s", execution_state={"m": messages(51)})
    assert dict(recorder.calls) == {"commit_all": 1}


def test_a_warm_declared_append_reads_nothing_at_all(store: Store):
    client, recorder = store.recorded()
    client.save("a", session_id="s", execution_state={"m": messages(50)})
    client.save("a", session_id="s", append={"m": messages(1, 50)})
    recorder.forget()
    client.save("a", session_id="s", append={"m": messages(1, 51)})
    assert dict(recorder.calls) == {"commit_all": 1}


@pytest.mark.parametrize("length", [20, 31, 400, 1000])
def test_a_cold_declared_append_reads_the_end_of_the_list_only(store: Store, length: int):
    """The digest's chain goes on from the link in the manifest: what is before the open block is not needed."""
    store.client().save("a", session_id="s", execution_state={"m": messages(length)})
    cold, recorder = store.recorded()
    asked: list[Span] = []
    runs = recorder.inner.segments
    recorder.inner.segments = lambda spans: asked.extend(spans) or runs(spans)
    saved = cold.save("a", session_id="s", append={"m": messages(1, length)})
    assert sum(span.end - span.first for span in asked) <= 16 * 1024 // 500 + 2
    recorder.inner.segments = runs
    assert cold.restore(saved).execution_state == {"m": messages(length + 1)}
    whole = store.client().save("a", session_id="t", execution_state={"m": messages(length + 1)})
    assert root_of(recorder, saved) == root_of(recorder, whole)  # the digest says nothing of how the list came about
    assert cold.verify().ok


def test_a_list_that_only_looks_like_the_parents_is_not_taken_for_it(store: Store):
    """1, 1.0 and True are equal in Python and different here; so are -0.0 and 0.0, and bytes and bytearray."""
    pairs = [
        (1, 1.0),
        (1, True),
        (0.0, -0.0),
        (b"a", bytearray(b"a")),
        ((1,), [1]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ]
    for warm in (True, False):
        for old, new in pairs:
            client = store.client()
            session = f"{old!r}{new!r}{warm}"
            client.save("a", session_id=session, execution_state={"m": [*messages(20), old]})
            client = client if warm else store.client()
            saved = client.save("a", session_id=session, execution_state={"m": [*messages(20), new]})
            restored = client.restore(saved).execution_state["m"][-1]
            assert repr(restored) == repr(new)


def root_of(recorder: Recorder, checkpoint_id: str) -> bytes:
    [found] = recorder.inner.records([ids.from_text(checkpoint_id)])
    return found.data[-68:-36]


class TestTheCacheMovesOnlyOnAcknowledgement:
    def test_a_failed_commit_is_forgotten(self, store: Store):
        client, recorder = store.recorded()
        first = client.save("a", session_id="s", execution_state={"m": messages(20)})

        def fail(commits) -> None:
            recorder.before_commit = None
            raise StoreError("disk full")

        recorder.before_commit = fail
        with pytest.raises(StoreError, match="disk full") as error:
            client.save("a", session_id="s", execution_state={"m": messages(30)})
        assert error.value.checkpoint_id is not None
        saved = client.restore(client.save("a", session_id="s", execution_state={"m": messages(30)}))
        assert (saved.parent_id, saved.sequence) == (first, 2)
        assert saved.execution_state == {"m": messages(30)}
        assert client.verify().ok

    @pytest.mark.parametrize("start", [2, 30], ids=["short list", "long list"])
    def test_what_was_queued_behind_a_failed_commit_starts_again_from_the_store(self, memory_store: Store, start: int):
        """Saves that wait together follow each other; when the first fails, the others must not build upon it."""
        recorder = Recorder(memory_store.backend())
        client = Client(recorder)
        failing = []
        others_wait = threading.Event()

        def fail_first(commits) -> None:
            if not failing and any(commit.record for commit in commits):
                failing.append(commits[0])
                assert others_wait.wait(240)
                raise StoreError("disk full")

        async def scenario() -> list:
            await client.save("a", session_id="s", execution_state={"m": messages(start)})
            recorder.before_commit = fail_first
            first = asyncio.create_task(client.save("a", session_id="s", append={"m": ["lost"]}))
            while not failing:  # noqa: ASYNC110 - it is set by another thread
                await asyncio.sleep(0)
            rest = [asyncio.create_task(client.save("a", session_id="s", append={"m": [i]})) for i in range(5)]
            for _ in range(20):
                await asyncio.sleep(0)
            others_wait.set()
            return await asyncio.gather(first, *rest, return_exceptions=True)

        outcomes = asyncio.run(scenario())
        assert [type(outcome) for outcome in outcomes] == [StoreError, *[str] * 5]
        reader = memory_store.client()
        final = reader.latest(session_id="s").execution_state["m"]
        assert final[:start] == messages(start)
        assert sorted(final[start:]) == list(range(5))
        assert [entry.sequence for entry in reader.timeline(session_id="s")] == [6, 5, 4, 3, 2, 1]

    @pytest.mark.parametrize("start", [2, 30], ids=["short list", "long list"])
    def test_saves_that_wait_together_survive_another_process_that_comes_between(self, memory_store: Store, start: int):
        """The first of the batch conflicts, and with it all that were planned after it: each is linked anew."""
        recorder = Recorder(memory_store.backend())
        client, other = Client(recorder), memory_store.client()

        def meanwhile(commits) -> None:
            recorder.before_commit = None
            other.save("b", session_id="s", append={"m": ["theirs"]})

        async def scenario() -> None:
            await client.save("a", session_id="s", execution_state={"m": messages(start)})
            recorder.before_commit = meanwhile
            await asyncio.gather(*(client.save("a", session_id="s", append={"m": [i]}) for i in range(8)))

        asyncio.run(scenario())
        final = other.latest(session_id="s").execution_state["m"]
        assert final[: start + 1] == [*messages(start), "theirs"]
        assert sorted(final[start + 1 :]) == list(range(8))
        assert other.verify().ok

    def test_a_refused_save_leaves_the_memory_right(self, store: Store):
        client = store.client()
        head = client.save("a", session_id="s", execution_state={"m": messages(20)})
        for _ in range(2):
            with pytest.raises(ConflictError):
                client.save("a", session_id="s", execution_state={"m": []}, expect_head="0" * 32)
        assert client.restore(client.save("a", session_id="s", append={"m": [1]})).parent_id == head


class TestTheCacheIsCapped:
    def test_many_sessions_stay_under_the_cap(self, memory_store: Store):
        client = memory_store.client(cache_bytes=200_000)
        for i in range(40):
            client.save("a", session_id=f"s{i}", execution_state={"m": messages(60, i)})
            assert client._ctx.memory.buffered_bytes <= 200_000
        assert client._ctx.memory.buffered_bytes > 0
        for i in range(40):
            saved = client.save("a", session_id=f"s{i}", execution_state={"m": messages(61, i)})
            assert client.restore(saved).execution_state == {"m": messages(61, i)}
            assert client._ctx.memory.buffered_bytes <= 200_000

    def test_a_session_larger_than_the_cap_is_saved_all_the_same(self, store: Store):
        client = store.client(cache_bytes=1000)
        for count in (50, 51, 52):
            saved = client.save("a", session_id="s", execution_state={"m": messages(count)})
            assert client._ctx.memory.buffered_bytes <= 1000
            assert client.restore(saved).execution_state == {"m": messages(count)}

    def test_no_cache_at_all(self, store: Store):
        client, recorder = store.recorded(cache_bytes=0)
        client.save("a", session_id="s", execution_state={"m": messages(50)})
        recorder.forget()
        saved = client.save("a", session_id="s", execution_state={"m": messages(51)})
        assert recorder.written_bytes() < 1500
        assert client.restore(saved).execution_state == {"m": messages(51)}
