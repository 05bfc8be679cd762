"""A result that can't be stored is never None on resume: its plain value is, or an error says so."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path
from typing import Any

import pydantic
import pytest
from stores import Store, python

import holdfast
from holdfast import EffectBlockedError, SyncClient, SyncRun


def carry_out(run: SyncRun, done: list[int], **options: Any) -> object:
    def pay() -> object:
        done.append(1)
        return object()

    return run.effect("pay", pay, **options)


def test_every_life_says_that_it_was_carried_out_until_a_person_gives_a_result(store: Store):
    done: list[int] = []
    client = store.client()
    for _ in range(3):
        with (
            pytest.raises(holdfast.ResultNotKeptError, match="carried out, but its result could not be kept") as told,
            store.client().run("s") as run,
        ):
            carry_out(run, done)
    [effect] = client.effects("s")
    assert (effect.state, effect.effect_id) == ("done", told.value.effect.effect_id)
    assert "could not be kept" in str(effect.error)
    with pytest.raises(holdfast.ConflictError, match="not in doubt"):
        client.resolve_effect(effect.effect_id, "not_done", by="ann")
    client.resolve_effect(effect.effect_id, "done", result="receipt 1", by="ann")
    for _ in range(2):
        with store.client().run("s") as run:
            assert carry_out(run, done) == "receipt 1"
    assert len(done) == 1
    [effect] = client.effects("s")
    assert effect.error is None


def test_a_program_that_goes_on_from_it_is_not_blocked_and_does_not_do_it_again(client: SyncClient):
    done: list[int] = []

    def pay(to: str) -> object:
        done.append(1)
        return object() if to == "a" else "receipt"

    for _ in range(2):
        with client.run("s") as run:
            for _ in range(2):  # a retry loop
                with pytest.raises(holdfast.ResultNotKeptError):
                    run.effect("pay", pay, "a")
            assert run.effect("pay", pay, "b") == "receipt"
    assert len(done) == 2


def test_an_idempotent_one_is_called_again_with_the_same_key(client: SyncClient):
    keys: list[str] = []

    def put(*, idempotency_key: str) -> object:
        keys.append(idempotency_key)
        return object() if len(keys) < 3 else "put"

    for _ in range(2):
        with pytest.raises(holdfast.ResultNotKeptError, match="the next start calls it again"), client.run("s") as run:
            run.effect("put", put, kind="idempotent")
    for _ in range(2):
        with client.run("s") as run:
            assert run.effect("put", put, kind="idempotent") == "put"
    assert len(keys) == 3
    assert len(set(keys)) == 1


def test_after_a_rollback_it_is_still_not_repeated(client: SyncClient):
    done: list[int] = []
    with client.run("s") as run:
        before = run.save("before")
        with pytest.raises(holdfast.ResultNotKeptError):
            carry_out(run, done)
    client.rollback("s", before)
    with client.run("s") as run:
        with pytest.raises(EffectBlockedError):
            carry_out(run, done)
        with pytest.raises(holdfast.ResultNotKeptError):
            carry_out(run, done, on_repeat="replay")
    assert len(done) == 1


def test_what_a_probe_found_and_can_not_be_kept_is_done_all_the_same(client: SyncClient):
    done: list[int] = []

    def pay() -> None:
        done.append(1)
        raise ConnectionError

    for _ in range(2):
        with client.run("s") as run:
            for expected in (ConnectionError, holdfast.ResultNotKeptError)[len(done) :]:
                with pytest.raises(expected):
                    run.effect("pay", pay, key="order-1", probe=lambda: holdfast.Done(object()))
    assert len(done) == 1


class Answer(pydantic.BaseModel):
    text: str
    at: datetime
    usage: dict[str, int] = {}


class Odd(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    path: Path
    other: Any = None


MOMENT = datetime(2026, 1, 2, 3, 4, 5)
PLAIN = {"text": "yes", "at": MOMENT, "usage": {"tokens": 7}}


@pytest.mark.parametrize("how", ["step", "effect"])
def test_a_pydantic_model_is_kept_as_plain_data_and_given_so_in_every_life(
    client: SyncClient, caplog: pytest.LogCaptureFixture, how: str
):
    calls = []

    def ask() -> object:
        calls.append(1)
        return {"answers": [Answer(text="yes", at=MOMENT, usage={"tokens": 7})], "n": 1}

    for _ in range(2):
        with client.run("s") as run:
            assert getattr(run, how)("ask", ask) == {"answers": [PLAIN], "n": 1}
    assert len(calls) == 1
    assert "kept as plain data" in caplog.text


def test_with_await_too(store: Store):
    calls = []

    async def ask() -> Answer:
        calls.append(1)
        return Answer(text="yes", at=MOMENT, usage={"tokens": 7})

    async def refused() -> object:
        calls.append(1)
        return object()

    async def program() -> None:
        async with store.async_client() as client:
            for _ in range(2):
                async with client.run("s") as run:
                    assert await run.step("ask", ask) == PLAIN
                    with pytest.raises(holdfast.ResultNotKeptError):
                        await run.effect("pay", refused)

    asyncio.run(program())
    assert len(calls) == 2


def test_a_step_whose_result_is_refused_is_not_called_again_by_a_program_that_goes_on(client: SyncClient):
    calls = []

    def ask() -> object:
        calls.append(1)
        return Odd(path=Path("x"), other=object())

    for _ in range(2):
        with client.run("s") as run:
            with pytest.raises(holdfast.ResultNotKeptError, match="step 'ask' was carried out"):
                run.step("ask", ask, retry=holdfast.Retry(attempts=1, seconds=0))
            run.step("another way", lambda: 1)
    assert len(calls) == 1


def test_a_refused_result_is_no_reason_to_try_again_at_once(quick: SyncClient):
    calls = []

    def ask() -> object:
        calls.append(1)
        return object() if len(calls) == 1 else "repaired"

    with pytest.raises(holdfast.ResultNotKeptError), quick.run("s") as run:
        run.step("ask", ask, retry=holdfast.Retry(attempts=5, seconds=0))
    with quick.run("s") as run:  # it ended the run: the function may have been repaired since
        assert run.step("ask", ask, retry=holdfast.Retry(attempts=5, seconds=0)) == "repaired"
    assert len(calls) == 2


KILLED = """
    import os, sys
    from holdfast import HoldfastError, SyncClient
    def pay():
        with open(sys.argv[3], "a") as world:
            world.write("paid ")
        return object()
    try:
        with SyncClient.open(sys.argv[1]) as client, client.run("s") as run:
            try:
                run.effect("pay", pay, key="order-1")
            except HoldfastError as error:
                print(type(error).__name__, flush=True)
            if sys.argv[2] == "kill":
                os._exit(9)
    except HoldfastError as error:
        print(type(error).__name__, flush=True)
"""


@pytest.mark.slow
def test_a_life_that_is_killed_afterwards_changes_nothing(sqlite_store: Store, tmp_path: Path):
    world = tmp_path / "world"
    told = [
        python(KILLED, sqlite_store.url, how, str(world), check=False).stdout.split() for how in ("kill", "kill", "end")
    ]
    assert told == [["ResultNotKeptError"]] * 3
    assert world.read_text() == "paid "
