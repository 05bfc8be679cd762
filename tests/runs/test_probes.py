"""Probes answer `Done(result)` or `NOT_DONE`. Anything else says nothing, and loses nothing."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any, Optional

import pytest
from bank import Bank, crashed, pay
from stores import Store

from holdfast import EffectUnknownError, SyncClient, UsageError


@pytest.mark.parametrize("answer", [True, False, None, "receipt", 0, {}])
def test_what_is_no_answer_leaves_the_effect_in_doubt(store: Store, bank: Bank, answer: object):
    client = store.client()
    crashed(client, bank)

    def find(to: str, amount: int, **_: object) -> Any:
        return answer

    for _ in range(2):
        with (
            client.run("s", agent_id="buyer") as run,
            pytest.raises(EffectUnknownError, match=r"Done\(result\)") as refused,
        ):
            pay(run, bank, probe=find)
        assert isinstance(refused.value, TypeError)
        assert repr(answer) in str(refused.value)
        [effect] = client.effects(in_doubt=True)
        assert effect == refused.value.effect
    with client.run("s", agent_id="buyer") as run:
        assert pay(run, bank, probe=bank.find) == "found"
    assert len(bank.paid) == 1


def test_with_await_too(store: Store, bank: Bank):
    async def find(to: str, amount: int) -> Any:
        return True

    async def program() -> None:
        async with store.async_client() as client, client.run("s", agent_id="buyer") as run:
            with pytest.raises(EffectUnknownError, match="returned True"):
                await run.effect("pay", bank.pay, "bob", 500, probe=find)

    crashed(store.client(), bank)
    asyncio.run(program())
    assert len(bank.paid) == 1


def as_bool(to: str, amount: int) -> bool:
    return True


def as_result(to: str, amount: int) -> Optional[str]:  # noqa: UP045 - as older programs write it
    return None


async def awaited(to: str, amount: int) -> bool:
    return True


def giving_awaitable(to: str, amount: int) -> Awaitable[bool]:
    return awaited(to, amount)


class Finder:
    def __call__(self, to: str, amount: int) -> bool:
        return True

    def find(self, to: str, amount: int) -> dict[str, int] | None:
        return None


@pytest.mark.parametrize(
    "probe", [as_bool, as_result, functools.partial(as_bool), Finder(), Finder().find, giving_awaitable]
)
def test_an_annotation_that_allows_no_answer_is_refused_before_anything_is_done(
    quick: SyncClient, bank: Bank, probe: Callable[..., Any]
):
    with quick.run("s") as run, pytest.raises(UsageError, match="its probe is annotated to return"):
        pay(run, bank, probe=probe)
    assert (bank.paid, quick.effects()) == ([], [])


def test_a_coroutine_function_as_probe_or_undo_of_a_plain_run_is_refused(quick: SyncClient, bank: Bank):
    async def find(to: str, amount: int) -> Any:
        raise AssertionError("it is asked")

    with quick.run("s") as run:
        for options in ({"probe": find}, {"undo": find}):
            with pytest.raises(UsageError, match="is async"):
                pay(run, bank, **options)
    assert bank.paid == []


def unresolved(to: str, amount: int) -> Receipt:  # type: ignore[name-defined]  # noqa: F821 - what can't be resolved
    return to


@pytest.mark.parametrize("probe", [unresolved, lambda to, amount: None])
def test_what_an_annotation_leaves_open_is_accepted_until_it_is_asked(
    quick: SyncClient, bank: Bank, probe: Callable[..., Any]
):
    with quick.run("s") as run:
        assert pay(run, bank, probe=probe) == "receipt 1"
