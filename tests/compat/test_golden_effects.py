"""Effects that an earlier version wrote down are found by this one: nothing is paid twice, and keys stay the same."""

from __future__ import annotations

from collections.abc import Iterator

import effects_story
import pytest

from holdfast import EffectUnknownError, SyncClient, SyncRun


@pytest.fixture
def client() -> Iterator[SyncClient]:
    with SyncClient.memory() as opened:
        opened.import_(effects_story.PATH)
        yield opened


def never(to: str, amount: int = 5, currency: str = "EUR", *, idempotency_key: str) -> str:
    raise AssertionError("it is called")


def test_what_is_done_is_found_by_its_key_and_by_its_arguments(client: SyncClient):
    with client.run("s", agent_id="a") as run:
        assert run.effect("pay", never, "ann", 7, key="order-1") == "5 EUR to ann"
        assert run.effect("pay", effects_story.pay, "bob") == "5 EUR to bob"
        assert run.effect("pay", effects_story.pay, "bob", 5) == "5 EUR to bob"
        assert len(client.effects("s")) == 6


def test_what_is_in_doubt_is_repeated_with_the_same_provider_key(client: SyncClient):
    before = {one.effect_id: one.provider_key for one in client.effects("s") if one.tool == "put"}
    given: list[str] = []

    def put(to: str, amount: int = 5, currency: str = "EUR", *, idempotency_key: str) -> None:
        given.append(idempotency_key)

    with client.run("s", agent_id="a") as run:
        run.effect("put", put, "eve", kind="idempotent", key="order-2")
        run.effect("put", put, "eve", kind="idempotent")
    assert sorted(given) == sorted(before.values())
    assert {one.effect_id: one.provider_key for one in client.effects("s") if one.tool == "put"} == before


def test_after_a_rollback_the_ledger_is_found_so(client: SyncClient):
    client.rollback("s", client.timeline(session_id="s")[-1].checkpoint_id)
    with client.run("s", agent_id="a") as run:
        for _ in range(2):
            assert run.effect("pay", never, "bob", on_repeat="replay") == "5 EUR to bob"
        with pytest.raises(EffectUnknownError):
            run.effect("put", never, "eve", key="order-2")


def test_a_replay_finds_them_too(client: SyncClient):
    def program(run: SyncRun) -> list[object]:
        paid = run.effect("pay", never, "ann", 7, key="order-1")
        return [paid, *[run.effect("pay", never, "bob") for _ in range(2)]]

    report = client.replay("s", program, mode="recorded")
    assert report.result == ["5 EUR to ann", "5 EUR to bob", "5 EUR to bob"], report.error
