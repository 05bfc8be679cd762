"""Effects that nothing tells apart but who asks for them: by a key, or in a task. None is another
one's, in whatever order they are asked for after a crash."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from stores import Store

from holdfast import NOT_DONE, ApprovalPendingError, Done, EffectBlockedError, SyncClient, SyncRun
from holdfast.backends.port import Commit
from holdfast.model import ids
from holdfast.model.effect import NotDone
from holdfast.operations import ledger
from holdfast.runs.call_sites import are_two


class Books:
    """A bank that is asked by reference, and counts what it was told to do with each."""

    def __init__(self) -> None:
        self.paid: list[str] = []
        self.keys: dict[str, set[str]] = {}
        self.dies_at: str | None = None

    def pay(self, to: str, ref: str, *, idempotency_key: str) -> str:
        self.paid.append(ref)
        self.keys.setdefault(ref, set()).add(idempotency_key)
        if self.dies_at == ref:
            raise KeyboardInterrupt
        return f"receipt of {ref}"

    def find(self, to: str, ref: str) -> Done | NotDone:
        return Done(f"receipt of {ref}") if ref in self.paid else NOT_DONE


Ask = Callable[[SyncRun, Books, str], object]
PROBED = {"volatile": "ref", "kind": "reversible"}


def by_key(run: SyncRun, books: Books, ref: str, **options: Any) -> object:
    return run.effect("pay", books.pay, "bob", ref, key=ref, probe=books.find, **{"kind": "reversible", **options})


def in_task(run: SyncRun, books: Books, ref: str, **options: Any) -> object:
    for task in run.tasks("invoices", [ref]):
        result = run.effect("pay", books.pay, "bob", task.id, probe=books.find, **{**PROBED, **options})
    return result


def by_subagent(run: SyncRun, books: Books, ref: str, **options: Any) -> object:
    with run.subagent("payer", subagent_id=ref) as payer:
        return payer.effect("pay", books.pay, "bob", ref, probe=books.find, **{**PROBED, **options})


@pytest.fixture
def books() -> Books:
    return Books()


def die_at(
    client: SyncClient, books: Books, ref: str, program: Callable[[SyncRun], object], session: str = "s"
) -> None:
    books.dies_at = ref
    with pytest.raises(KeyboardInterrupt), client.run(session) as run:
        program(run)
    books.dies_at = None


@pytest.mark.parametrize("ask", [by_key, in_task, by_subagent])
def test_the_second_one_asked_for_first_does_not_take_up_the_first(store: Store, books: Books, ask: Ask):
    die_at(store.client(), books, "A", lambda run: ask(run, books, "A"))
    with store.client().run("s") as run:
        assert ask(run, books, "B") == "receipt of B"
        assert ask(run, books, "A") == "receipt of A"
    assert books.paid == ["A", "B"]
    assert len(books.keys["A"] | books.keys["B"]) == 2


def test_repeatable_ones_are_repeated_with_their_own_keys(client: SyncClient, books: Books):
    repeat = {"kind": "idempotent"}
    die_at(client, books, "A", lambda run: by_key(run, books, "A", **repeat))
    with client.run("s") as run:
        by_key(run, books, "B", **repeat)
        by_key(run, books, "A", **repeat)
    assert books.paid == ["A", "B", "A"]
    assert books.keys["A"] & books.keys["B"] == set()
    assert len(books.keys["A"]) == 1


@pytest.mark.parametrize("ask", [by_key, in_task, by_subagent])
def test_an_irreversible_one_does_not_wait_for_another_that_is_in_doubt(client: SyncClient, books: Books, ask: Any):
    final = {"kind": "irreversible"}
    die_at(client, books, "B", lambda run: ask(run, books, "B", **final))
    with client.run("s") as run:
        ask(run, books, "A", **final)
        ask(run, books, "B", **final)
    books.paid.sort()
    assert books.paid == ["A", "B"]


def test_one_with_a_key_and_one_without_are_two(client: SyncClient, books: Books):
    die_at(client, books, "A", lambda run: by_key(run, books, "A"))
    with client.run("s") as run:
        run.effect("pay", books.pay, "bob", "B", probe=books.find, **PROBED)
        by_key(run, books, "A")
    assert books.paid == ["A", "B"]


def test_one_that_was_written_down_is_found_behind_one_that_was_not(store: Store, books: Books):
    def program(run: SyncRun) -> None:
        with pytest.raises(ApprovalPendingError):
            by_key(run, books, "A", approve="finance")
        by_key(run, books, "B")

    die_at(store.client(), books, "B", program)
    with store.client().run("s") as run:
        assert by_key(run, books, "B") == "receipt of B"
        assert by_key(run, books, "A") == "receipt of A"
    assert books.paid == ["B", "A"]


@pytest.mark.parametrize("ask", [by_key, in_task])
def test_after_a_rollback_each_is_given_its_own_result(client: SyncClient, books: Books, ask: Ask):
    with client.run("s") as run:
        run.save("start")
        ask(run, books, "A")
        ask(run, books, "B")
    [start] = [one for one in client.timeline(session_id="s") if one.step_name == "start"]
    client.rollback("s", start.checkpoint_id)
    with client.run("s") as run:
        assert ask(run, books, "B") == "receipt of B"
        assert ask(run, books, "A") == "receipt of A"
    assert books.paid == ["A", "B"]


def test_one_that_was_interrupted_is_not_another_threads(client: SyncClient, books: Books):
    """In one life: the place of the interrupted call is free again, and its entry is not."""
    with client.run("s") as run:
        books.dies_at = "A"
        with pytest.raises(KeyboardInterrupt):
            in_task(run, books, "A")
        books.dies_at = None
        other = threading.Thread(target=lambda: in_task(run, books, "B"))
        other.start()
        other.join()
        in_task(run, books, "A")
    assert books.paid == ["A", "B"]


def test_what_an_older_holdfast_has_written_is_met_as_it_was_then(store: Store, books: Books):
    """It did not say where a call was made."""
    die_at(store.client(), books, "A", lambda run: by_key(run, books, "A"))

    async def forget_place() -> None:
        client = store.async_client()
        [effect] = await client.effects("s")
        entry = await ledger.load_entry(client._ctx, ids.from_text(effect.effect_id))
        older = replace(entry, place=None)
        await client._ctx.backend.commit(Commit(tree=entry.tree, rows=[older.write(entry)]))

    asyncio.run(forget_place())
    with store.client().run("s") as run:
        assert by_key(run, books, "A") == "receipt of A"
    assert books.paid == ["A"]


DIGEST = "%21" + "0" * 32


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (f"a/pay{DIGEST}#0", f"a/pay{DIGEST}#1", False),
        (f"a/pay{DIGEST}#0", f"b/pay{DIGEST}#0", False),
        (f"a/pay{DIGEST}#k!", f"a/pay{DIGEST}#l!", True),
        (f"a/pay{DIGEST}#k!", f"a/pay{DIGEST}#k!", False),
        (f"a/pay{DIGEST}#k!", f"a/pay{DIGEST}#0", True),
        (f"a/pay{DIGEST}#k!", f"a/t//x/pay{DIGEST}#0", True),
        (f"a/pay{DIGEST}#k!", f"a/t//x/pay{DIGEST}#k!", False),
        (f"a/pay{DIGEST}#k!", f"a/pay%21{'1' * 32}#l!", True),
        (f"a/t//x/pay{DIGEST}#0", f"a/t//y/pay{DIGEST}#0", True),
        (f"a/t//x/pay{DIGEST}#0", f"a/u//x/pay{DIGEST}#0", False),
        (f"a/t//x/pay{DIGEST}#0", f"a/pay{DIGEST}#0", False),
        (f"a/t//x/pay{DIGEST}#0", f"a/t//x/edit#0/pay{DIGEST}#0", False),
        (f"a/r#k!/pay{DIGEST}#0", f"a/r#l!/pay{DIGEST}#0", True),
        (f"a/r#0/pay{DIGEST}#0", f"a/r#1/pay{DIGEST}#0", False),
        (f"a/edit#0/pay{DIGEST}#0", f"a/pay{DIGEST}#0", False),
    ],
)
def test_which_calls_are_two_for_sure(one: str, other: str, expected: bool):
    assert are_two(one, other) is are_two(other, one) is expected


class Dies(BaseException):
    """The program dies of it."""


def many_lives(seed: int, ask: Callable[..., object], kind: str) -> Books:
    """A program that pays six equal invoices, in another order in each life; it dies before
    payments and after them, and is rolled back now and then, until a life comes to its end."""
    rng = random.Random(seed)
    books = Books()
    client = SyncClient.open("memory://")
    refs = [f"invoice {number}" for number in range(6)]

    def pay(to: str, ref: str) -> str:
        if rng.random() < 0.3:
            raise Dies
        receipt = books.pay(to, ref, idempotency_key="")
        if rng.random() < 0.4:
            raise Dies
        return receipt

    for _ in range(100):
        if rng.random() < 0.2 and (saved := client.timeline(session_id="s")):
            client.rollback("s", rng.choice(saved).checkpoint_id)
        try:
            with client.run("s") as run:
                for ref in rng.sample(refs, len(refs)):
                    ask(run, books, ref, kind=kind, on_repeat="replay", pay=pay)
        except (Dies, EffectBlockedError):
            continue
        return books
    raise AssertionError("no life came to its end")


def by_keys(run: SyncRun, books: Books, ref: str, *, pay: Callable[..., object], **options: Any) -> None:
    done = run.effect("pay", pay, "bob", ref, key=ref, probe=books.find, **options)
    assert done == f"receipt of {ref}"


def in_tasks(run: SyncRun, books: Books, ref: str, *, pay: Callable[..., object], **options: Any) -> None:
    for task in run.tasks("invoices", [ref]):
        done = run.effect("pay", pay, "bob", task.id, volatile="ref", probe=books.find, **options)
        assert done == f"receipt of {ref}"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["reversible", "irreversible"])
@pytest.mark.parametrize("ask", [by_keys, in_tasks])
def test_in_whatever_order_many_lives_ask_each_is_paid_once(ask: Callable[..., object], kind: str):
    for seed in range(12):
        books = many_lives(seed, ask, kind)
        assert sorted(books.paid) == [f"invoice {number}" for number in range(6)], seed
