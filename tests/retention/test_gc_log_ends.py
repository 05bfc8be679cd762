"""gc removes the end of a log and leaves its tail: a number never names another element afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from stores import Store, messages

from holdfast import SyncClient
from holdfast.backends.bridge.step import run_inline
from holdfast.backends.port import Commit, SegmentInfo
from holdfast.format.state import reachable, record
from holdfast.model import ids

pytestmark = pytest.mark.every_store


def segments(client: SyncClient) -> list[SegmentInfo]:
    return run_inline(client._ctx.backend.page_segments(None, 1000))


def spans(client: SyncClient, id_: str) -> list[tuple[int, int, int]]:
    [found] = run_inline(client._ctx.backend.records([ids.from_text(id_)]))
    [entry] = record.unpack(client._ctx.codec, found.data).manifest().lists
    return [tuple(span) for span in entry.spans]


def save(client: SyncClient, session: str, items: list[Any]) -> str:
    return client.save("a", session_id=session, execution_state={"m": items})


def shorten(client: SyncClient, more: int) -> str:
    """Saves a list and, after it, one with more elements that expires; returns the first."""
    first = save(client, "s", messages(20))
    client.expire(save(client, "s", messages(20 + more)))
    return first


def before_removal(call: Callable[[], None]) -> Callable[[Sequence[Commit]], None]:
    """Returns what to set as `before_commit`: it makes the call before segments are removed, once."""
    done: list[bool] = []

    def before_commit(commits: Sequence[Commit]) -> None:
        if not done and any(commit.delete_segments for commit in commits):
            done.append(True)
            call()

    return before_commit


@pytest.mark.parametrize("more", [1, 2, 40])
def test_two_collections_at_once_lose_nothing_that_is_saved_between_them(store: Store, more: int):
    """The first has listed a segment, the second removes it, and other elements are saved: with the
    same bounds, the first would take them for what it has listed."""
    slow, recorder = store.recorded()
    quick = store.client()
    first = shorten(quick, more)
    items = [*messages(20), *messages(more, 500)]
    saved: list[str] = []

    def meanwhile() -> None:
        assert quick.gc().segments == 1
        quick.fork(first, session_id="fork")
        saved.append(save(quick, "fork", items))

    recorder.before_commit = before_removal(meanwhile)
    assert slow.gc().segments == 1
    assert store.client().restore(saved[0]).execution_state == {"m": items}
    assert store.client().verify().ok


@pytest.mark.parametrize("more", [1, 2, 40])
def test_a_log_takes_no_other_elements_where_its_end_was(store: Store, more: int):
    client = store.client()
    first = shorten(client, more)
    [(log, _, _)] = spans(client, first)
    assert client.gc().segments == 1
    client.fork(first, session_id="fork")
    items = [*messages(20), "other"]
    saved = save(client, "fork", items)
    assert [(span[0] == log, span[1:]) for span in spans(client, saved)] == [(True, (0, 20)), (False, (0, 1))]
    assert client.restore(saved).execution_state == {"m": items}
    assert client.restore(first).execution_state == {"m": messages(20)}
    assert client.verify().ok


def test_only_the_elements_that_are_needed_stay_and_a_second_collection_writes_nothing(store: Store):
    client, recorder = store.recorded()
    first = shorten(client, 40)
    before = sum(segment.size for segment in segments(client))
    client.gc()
    [kept, mark] = segments(client)
    assert (kept.first, kept.length, mark.first, mark.length) == (0, 20, 59, 1)
    assert mark.size <= reachable.MAX_END_MARK_BYTES
    assert kept.size < before / 2
    recorder.forget()
    for _ in range(2):
        report = client.gc()
        assert (report.segments, report.segments_trimmed, report.bytes_freed) == (0, 0, 0)
    assert not [commit for commit in recorder.commits if commit.delete_segments]
    client.expire(first)
    assert client.gc().segments == 2
    assert segments(client) == []


def test_the_end_of_a_segment_that_is_cut_is_marked(store: Store):
    """A sealed segment, of which the first checkpoint needs less than half."""
    client = store.client()
    first = save(client, "s", messages(15, size=2000))
    client.expire(save(client, "s", messages(33, size=2000)))
    assert client.gc().segments_trimmed == 1
    found = segments(client)
    assert [(segment.first, segment.length) for segment in found] == [(0, 15), (32, 1)]
    assert found[-1].size <= reachable.MAX_END_MARK_BYTES
    assert client.gc().segments_trimmed == 0
    client.fork(first, session_id="fork")
    items = [*messages(15, size=2000), *messages(18, 500, 2000)]
    saved = save(client, "fork", items)
    client.gc()
    assert store.client().restore(saved).execution_state == {"m": items}
    assert store.client().restore(first).execution_state == {"m": messages(15, size=2000)}


def test_a_small_element_at_the_end_of_a_log_is_no_mark(store: Store):
    client = store.client()
    save(client, "s", messages(20))
    client.expire(save(client, "s", [*messages(20), "a secret"]))
    [_, last] = segments(client)
    assert reachable.may_be_end_mark(last)
    assert client.gc().segments == 1
    [_, mark] = segments(client)
    assert mark.size < last.size
