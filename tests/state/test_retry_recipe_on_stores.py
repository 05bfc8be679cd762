"""Catch `StoreError` and repeat with its id, while commits fail: every save is there once, and no
repetition is refused (P9)."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import retry_recipe
from stores import SOME_ID, Recorder, Store, as_awaitable

from holdfast import Client, StoreError, SyncClient
from holdfast.backends.port import Commit, Record

pytestmark = pytest.mark.every_store

SAVES = 12


class Flaky(Recorder):
    """Fails every third batch with one error for all: before it was carried out, or after."""

    def __init__(self, inner) -> None:
        super().__init__(inner)
        self.batches = self.failed = 0
        self._rng = random.Random(7)

    def commit_all(self, commits: Sequence[Commit]) -> list[BaseException | None]:
        self.batches += 1
        if self.batches % 3 or not any(commit.record for commit in commits):
            return self.inner.commit_all(commits)
        self.failed += len(commits)
        if self._rng.random() < 0.5:
            self.inner.commit_all(commits)
        error = StoreError("the disk did not answer: it is not known whether the commit was carried out")
        if self._rng.random() < 0.5:
            raise error
        return [error] * len(commits)


class Unreadable(Recorder):
    """Records can't be read."""

    def records(self, ids: Sequence[bytes]) -> list[Record | None]:
        raise StoreError("the disk did not answer")


def test_a_repetition_that_fails_before_anything_is_written_names_the_same_id(memory_store: Store):
    client = SyncClient(Unreadable(memory_store.backend()))
    with pytest.raises(StoreError, match="did not answer") as caught:
        client.save("a", session_id="s", checkpoint_id=SOME_ID)
    assert caught.value.checkpoint_id == SOME_ID


@pytest.fixture
def flaky(store: Store) -> Flaky:
    return Flaky(store.backend())


def test_by_tasks(store: Store, flaky: Flaky):
    acknowledged = retry_recipe.by_tasks(Client(flaky), SAVES)
    assert flaky.failed > flaky.batches // 3  # batches of several failed
    again = store.client()
    retry_recipe.all_are_there_once(again, acknowledged, SAVES)


def test_by_tasks_in_the_loop_of_an_awaitable_store(store: Store, flaky: Flaky):
    acknowledged = retry_recipe.by_tasks(Client(as_awaitable(flaky)), SAVES)
    retry_recipe.all_are_there_once(store.client(), acknowledged, SAVES)


def test_by_threads(store: Store, flaky: Flaky):
    acknowledged = retry_recipe.by_threads(SyncClient(flaky), SAVES)
    assert flaky.failed
    retry_recipe.all_are_there_once(store.client(), acknowledged, SAVES)
