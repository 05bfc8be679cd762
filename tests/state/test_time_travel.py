"""References, comparisons and bisection."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest
from stores import Clock, Store

from holdfast import CheckpointNotFoundError, Client, SyncClient, UsageError


@pytest.fixture
def line(client: SyncClient, clock: Clock) -> list[str]:
    """Session `s` of ten checkpoints, a second apart; names of steps repeat."""
    clock.rules(client)
    made = []
    for step in range(10):
        made.append(client.save("a", session_id="s", execution_state={"n": step}, step_name=f"name-{step % 4}"))
        clock.forward(1)
    return made


class TestReferences:
    def test_of_places_in_a_session(self, client: SyncClient, line: list[str]) -> None:
        assert client.resolve("s") == client.resolve("s@") == client.resolve("@") == line[-1]
        assert client.resolve("s@-") == client.resolve("@-") == client.resolve("s@~1") == line[-2]
        assert client.resolve("s@--") == client.resolve("@~2") == line[-3]
        assert client.resolve("s@~9") == line[0]

    def test_of_steps_and_their_names(self, client: SyncClient, line: list[str]) -> None:
        assert client.resolve("s@{3}") == line[3]
        assert client.resolve("s@{name-1}") == line[9]
        assert client.resolve("s@{name-2}") == line[6]

    def test_of_dates(self, client: SyncClient, line: list[str], clock: Clock) -> None:
        fourth = client.get(line[4]).created_at
        assert client.resolve(f"s@{{{fourth:%Y-%m-%d %H:%M:%S}}}") == line[4]
        assert client.resolve(f"s@{{{fourth:%Y-%m-%dT%H:%M:%S}+00:00}}") == line[4]
        assert client.resolve(f"s@{{{datetime(2500, 1, 1, tzinfo=UTC):%Y-%m-%d}}}") == line[-1]
        with pytest.raises(CheckpointNotFoundError, match="matches no checkpoint"):
            client.resolve("s@{1999-01-01}")

    def test_of_ids_tags_and_their_lines(self, client: SyncClient, line: list[str]) -> None:
        client.tag("good", line[5])
        assert client.resolve(line[5]) == client.resolve(line[5][-8:]) == client.resolve("good") == line[5]
        assert client.resolve(f"{line[5]}@-") == client.resolve(f"{line[5][-8:]}@~1") == line[4]
        assert client.resolve("good@~2") == line[3]

    def test_go_up_through_a_fork(self, client: SyncClient, line: list[str]) -> None:
        client.fork(line[4], session_id="fork")
        assert client.resolve("fork@-") == line[4]
        assert client.resolve("fork@~3") == line[2]

    def test_pass_by_what_has_expired(self, client: SyncClient, line: list[str]) -> None:
        client.expire(line[8])
        assert client.resolve("s@-") == line[7]

    @pytest.mark.parametrize("name", ["user@example.com", "s@-", "@", "a@{1}"])
    def test_a_session_may_have_such_a_name(self, client: SyncClient, line: list[str], name: str) -> None:
        saved = client.save("a", session_id=name)
        assert client.resolve(name) == saved

    @pytest.mark.parametrize("ref", ["nothing", "nothing@", "s@~99", "s@{99}", "s@{no such step}", "s@{2026-13-45}"])
    def test_to_nothing_are_told(self, client: SyncClient, line: list[str], ref: str) -> None:
        with pytest.raises(CheckpointNotFoundError):
            client.resolve(ref)

    def test_in_an_empty_store(self, client: SyncClient) -> None:
        with pytest.raises(CheckpointNotFoundError):
            client.resolve("@")

    def test_that_may_be_two_things_are_refused(self, client: SyncClient, line: list[str]) -> None:
        client.tag("s", line[2])
        with pytest.raises(UsageError, match="give the id that is meant"):
            client.resolve("s")


class TestBisection:
    @pytest.mark.parametrize("bad_from", range(12))
    def test_finds_where_it_went_bad(self, client: SyncClient, line: list[str], bad_from: int) -> None:
        found = client.bisect("s", lambda checkpoint: checkpoint.execution_state["n"] < bad_from)
        expected = line[bad_from] if bad_from < len(line) else None
        assert (found.first_bad and found.first_bad.checkpoint_id) == expected
        if 0 < bad_from < len(line):
            assert found.last_good.checkpoint_id == line[bad_from - 1]
        assert len(found.looks) <= math.ceil(math.log2(len(line))) + 1
        assert found.of_all == 10
        assert "s:" in found.text()

    def test_in_the_line_of_a_fork(self, client: SyncClient, line: list[str]) -> None:
        client.fork(line[4], session_id="fork")
        for step in range(5):
            client.save("a", session_id="fork", execution_state={"n": -step})
        found = client.bisect("fork", lambda checkpoint: checkpoint.execution_state["n"] >= 0)
        assert client.restore(found.first_bad.checkpoint_id).execution_state == {"n": -1}

    async def _asynchronous(self, store: Store) -> str:
        async with Client.open(store.url) as client:
            for step in range(20):
                await client.save("a", session_id="s", execution_state={"n": step})

            async def is_good(checkpoint) -> bool:
                return checkpoint.execution_state["n"] < 13

            return (await client.bisect("s", is_good)).first_bad

    def test_with_a_predicate_that_awaits(self, disk_store: Store) -> None:
        import asyncio

        assert asyncio.run(self._asynchronous(disk_store)).step_index == 13

    def test_of_no_session(self, client: SyncClient) -> None:
        with pytest.raises(CheckpointNotFoundError, match="no session"):
            client.bisect("nothing", lambda _: True)


class TestComparing:
    def test_two_ways_from_one_step(self, client: SyncClient) -> None:
        start = client.save("a", session_id="one", execution_state={"plan": "?"}, usage={"tokens": 1000}, cost=9)
        client.fork(start, session_id="two")
        client.save("a", session_id="one", execution_state={"plan": "walk"}, usage={"tokens": 5}, cost=0.25)
        client.save("a", session_id="one", execution_state={"plan": "walk"}, usage={"tokens": 7}, outcome="late")
        client.save(
            "a", session_id="two", execution_state={"plan": "fly"}, usage={"tokens": 3}, cost=2, step_name="book"
        )
        found = client.compare("one", "two")
        assert found.ancestor.checkpoint_id == start
        assert found.a.usage == {"tokens": 12, "cost": 0.25}
        assert found.b.usage == {"tokens": 3, "cost": 2}
        assert [len(side.steps) for side in (found.a, found.b)] == [2, 1]  # that the fork began is no step
        assert (found.a.outcome, found.b.outcome) == ("late", "book")
        assert found.a.first.step_index == 1
        assert "~ execution_state.plan: 'walk' → 'fly'" in found.text()
        assert "tokens" in found._repr_html_()

    def test_totals_that_an_agent_loop_keeps(self, client: SyncClient) -> None:
        def state(prompt: int, cached: int | None) -> dict[str, object]:
            details = {} if cached is None else {"details": {"cached": cached}}
            return {"messages": [], "metadata": {"usage": {"prompt": prompt, "unit": "tokens", **details}}}

        start = client.save("a", session_id="one", execution_state=state(100, None))
        client.fork(start, "two")
        client.save("a", session_id="one", execution_state=state(130, 7))
        client.save("a", session_id="one", execution_state=state(150, 9), usage={"prompt": 1})
        client.save("a", session_id="two", execution_state={"metadata": {}})
        found = client.compare("one", "two")
        assert found.a.usage == {"prompt": 51, "details.cached": 9}
        assert found.b.usage == {}

    def test_strangers(self, client: SyncClient) -> None:
        client.save("a", session_id="one", execution_state={"n": 1})
        client.save("a", session_id="two", execution_state={"n": 1})
        found = client.compare("one", "two")
        assert found.ancestor is None
        assert not found.diff
        assert "no common ancestor" in found.text()
        assert "the same state" in found.text()
