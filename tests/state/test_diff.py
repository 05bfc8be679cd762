"""client.diff: what it says to people and programs, and what it reads."""

from __future__ import annotations

import random

import pytest
from stores import SOME_ID, Recorder, Store

from holdfast import CheckpointNotFoundError, SyncClient, UnsupportedValueError
from holdfast.model.diff import At, Drop, Put, Splice


def messages(count: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"{number} " + "words " * 100} for number in range(count)]


def two(client: SyncClient, a: object, b: object) -> tuple[str, str]:
    return client.save("a", execution_state=a, session_id="s"), client.save("a", execution_state=b, session_id="s")


def test_says_what_changed(client: SyncClient) -> None:
    diff = client.diff(
        *two(
            client,
            {"plan": "search", "step": 1, "old": None, "messages": messages(20)},
            {"plan": "answer", "step": True, "messages": [*messages(20), {"role": "assistant", "content": "42"}]},
        )
    )
    assert diff
    assert diff.edits == (
        Drop(("execution_state", "old"), None),
        Put(("execution_state", "plan"), "answer", "search", replaces=True),
        Put(("execution_state", "step"), True, 1, replaces=True),
        Splice(("execution_state", "messages"), 20, (), ({"role": "assistant", "content": "42"},)),
    )
    assert diff.text().split("\n") == [
        "+ execution_state.messages[20]: {'role': 'assistant', 'content': '42'}",
        "- execution_state.old: None",
        "~ execution_state.plan: 'search' → 'answer'",
        "~ execution_state.step: 1 → True",
    ]
    assert "assistant" in diff._repr_html_()


def test_an_insertion_at_the_front_is_one_insertion(client: SyncClient) -> None:
    [edit] = client.diff(*two(client, {"m": messages(30)}, {"m": ["first", *messages(30)]})).edits
    assert edit == Splice(("execution_state", "m"), 0, (), ("first",))


def test_an_edited_message_is_an_edit_in_it(client: SyncClient) -> None:
    edited = messages(30)
    edited[7] = edited[7] | {"role": "system"}
    [edit] = client.diff(*two(client, {"m": messages(30)}, {"m": edited})).edits
    assert edit == Put(("execution_state", "m", At(7), "role"), "system", "user", replaces=True)


def test_adjacent_elements_that_went_or_came_are_one_line(client: SyncClient) -> None:
    diff = client.diff(*two(client, {"m": messages(30)}, {"m": [*messages(3), *messages(30)[18:], "a", "b"]}))
    removed, added = diff.text().split("\n")
    assert removed.startswith("- execution_state.m[3..17] removed (15 elements): user: '3 words words")
    assert len(removed) < 250
    assert added == "+ execution_state.m[30..31] added (2 elements): 'a' · 'b'"


def test_only_elements_that_two_lists_do_not_share_are_read(store: Store) -> None:
    """Wherever the others stand: here at both ends and in the middle."""
    backend = store.backend()
    if backend.capabilities.awaitable:
        pytest.skip("the recorder is for blocking stores")
    recorder = ReadBytes(backend)
    client = SyncClient(recorder)
    chance = random.Random(1)
    old = [{"content": chance.randbytes(300).hex()} for _ in range(1500)]
    one, other = two(client, {"m": old}, {"m": ["front", *old[:700], "middle", *old[703:], "end"]})
    recorder.read = 0
    edits = SyncClient(recorder).diff(one, other).edits
    assert edits == (
        Splice(("execution_state", "m"), 1500, (), ("end",)),
        Splice(("execution_state", "m"), 700, tuple(old[700:703]), ("middle",)),
        Splice(("execution_state", "m"), 0, (), ("front",)),
    )
    assert recorder.read < 150_000  # of twice half a megabyte: what was removed lies in sealed runs


def test_only_what_differs_is_read(store: Store) -> None:
    backend = store.backend()
    if backend.capabilities.awaitable:
        pytest.skip("the recorder is for blocking stores")
    recorder = ReadBytes(backend)
    client = SyncClient(recorder)
    state = {"messages": messages(1500), "text": "x" * 100_000, "n": 0}
    one = client.save("a", execution_state=state, session_id="s")
    state["messages"].append({"role": "user", "content": "one more"})
    other = client.save("a", execution_state=state | {"n": 1}, session_id="s")
    fresh = SyncClient(recorder)
    recorder.read = 0
    assert len(fresh.diff(one, other).edits) == 2
    assert recorder.read < 4_000


class ReadBytes(Recorder):
    """Counts the bytes of runs and blobs that are read."""

    read = 0

    def segments(self, spans):
        found = self.inner.segments(spans)
        self.read += sum(len(run.data) for of_span in found for run in of_span)
        return found

    def blobs(self, hashes):
        found = self.inner.blobs(hashes)
        self.read += sum(len(data or b"") for data in found)
        return found


def test_between_sessions_of_one_tree(client: SyncClient) -> None:
    start = client.save("a", execution_state={"m": messages(40)}, session_id="s")
    fork = client.fork(start, session_id="fork")
    left = client.save("a", session_id="s", append={"m": ["left"]})
    right = client.save("a", session_id="fork", append={"m": ["right"]})
    [edit] = client.diff(left, right).edits
    assert edit == Splice(("execution_state", "m"), 40, ("left",), ("right",))
    assert not client.diff(start, fork.checkpoint_id)


def test_an_unknown_checkpoint_is_named(client: SyncClient) -> None:
    one = client.save("a", session_id="s")
    with pytest.raises(CheckpointNotFoundError, match=SOME_ID):
        client.diff(one, SOME_ID)


def test_json_says_what_it_can(client: SyncClient) -> None:
    diff = client.diff(*two(client, {"a/b": [1, 2, 3], "n": 1}, {"a/b": [1, 3], "n": {"x": []}}))
    assert diff.json_patch() == [
        {"op": "remove", "path": "/a~1b/1"},
        {"op": "replace", "path": "/n", "value": {"x": []}},
    ]
    with pytest.raises(UnsupportedValueError, match="Use `apply`"):
        client.diff(*two(client, {}, {"t": (1, 2)})).json_patch()
    with pytest.raises(UnsupportedValueError, match="no string"):
        client.diff(*two(client, {}, {1: 2})).json_patch()
