"""Named runs: started by name, carried out by workers, retried, suspended, and handed back."""

import asyncio
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import (
    Client,
    ConflictError,
    Retry,
    Runnables,
    UsageError,
    runnable,
)
from holdfast.runs import api
from holdfast.runs.runnable import DECLARED

pytestmark = pytest.mark.every_store


@pytest.fixture
def names():
    return Runnables()


def status_of(client, session_id):
    return client.run_status(session_id)


def drain(client, names, **options):
    return client.work(drain=True, runnables=names, **options)


def test_a_started_run_waits_for_a_worker_and_is_carried_out_with_its_arguments(client, names):
    @runnable("orders.fulfil", registry=names)
    def fulfil(run, order, *, amount):
        return run.step("pay", lambda: (order, amount))

    session = client.start("orders.fulfil", "order-1", session_id="order-1", amount=5)
    assert session == "order-1"
    waiting = status_of(client, "order-1")
    assert (waiting.status, waiting.waits[0].kind, waiting.function) == ("waiting", "worker", "orders.fulfil")
    assert client.runs(status="waiting") == [waiting]
    assert drain(client, names) == 1
    done = status_of(client, "order-1")
    assert (done.status, done.result, done.saves) == ("completed", ("order-1", 5), 1)
    assert drain(client, names) == 0


def test_the_same_start_again_is_a_no_op_and_another_one_a_conflict(client, names):
    @runnable("count", registry=names)
    def count(run, number):
        return number

    client.start("count", 1, session_id="s")
    client.start("count", 1, session_id="s")
    with pytest.raises(ConflictError, match="with other arguments"):
        client.start("count", 2, session_id="s")
    with pytest.raises(ConflictError):
        client.start("other", 1, session_id="s")
    assert drain(client, names) == 1
    client.start("count", 1, session_id="s")
    assert drain(client, names) == 0
    assert status_of(client, "s").result == 1


def test_turns_of_a_session_are_started_one_after_the_other(client, names):
    @runnable("talk", registry=names, turns=True, retry=1)
    def talk(run, question):
        run.state = {"asked": [*run.state.get("asked", []), question]}
        if question == "fail":
            raise ValueError(question)
        return run.step(question, lambda: len(run.state["asked"]))

    client.start("talk", "a", session_id="s")
    with pytest.raises(ConflictError):
        client.start("talk", "b", session_id="s")
    assert drain(client, names) == 1
    client.start("talk", "a", session_id="s")
    assert drain(client, names) == 0
    client.start("talk", "fail", session_id="s")
    assert status_of(client, "s").status == "waiting"
    assert drain(client, names) == 1
    assert status_of(client, "s").status == "failed"
    with pytest.raises(ConflictError):  # a person decides about it first
        client.start("talk", "b", session_id="s")


def test_many_starts_at_once_are_one_run(client, names):
    ran = []

    @runnable("once", registry=names)
    def once(run):
        ran.append(run.session_id)

    threads = [threading.Thread(target=client.start, args=("once",), kwargs={"session_id": "s"}) for _ in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert drain(client, names) == 1
    assert ran == ["s"]


def test_coroutine_functions_run_in_the_workers_loop_and_plain_ones_in_threads(client, names):
    seen = {}

    @runnable("awaited", registry=names)
    async def awaited(run):
        seen["awaited"] = threading.get_ident()
        return await run.step("one", asyncio.sleep, 0, "a")

    @runnable("plain", registry=names)
    def plain(run):
        seen["plain"] = threading.get_ident()
        return run.step("one", lambda: "p")

    for name in ("awaited", "plain"):
        client.start(name, session_id=name)
    assert drain(client, names) == 2
    assert [status_of(client, one).result for one in ("awaited", "plain")] == ["a", "p"]
    assert seen["awaited"] == threading.get_ident() != seen["plain"]


def test_a_run_that_fails_is_tried_again_and_then_kept_for_a_person(client, names):
    lives = []

    @runnable("fails", registry=names, retry=Retry(attempts=3, seconds=0.01))
    def fails(run):
        run.step("first", lives.append, "first")
        lives.append("life")
        raise ValueError("no account")

    client.start("fails", session_id="s")
    while status_of(client, "s").status != "failed":
        drain(client, names)
    failed = status_of(client, "s")
    assert (failed.attempts, failed.failure.message) == (3, "no account")
    assert lives == ["first", "life", "life", "life"]
    assert drain(client, names) == 0
    client.retry("s")
    assert status_of(client, "s").status == "waiting"
    while status_of(client, "s").status != "failed":
        drain(client, names)
    assert lives.count("life") == 6


def test_a_retry_waits_and_says_until_when_and_why(client, names):
    @runnable("fails", registry=names, retry=Retry(attempts=2, seconds=60))
    def fails(run):
        raise ValueError("busy")

    client.start("fails", session_id="s")
    drain(client, names)
    found = status_of(client, "s")
    assert (found.status, found.waits[0].kind, found.failure.message, found.attempts) == ("waiting", "retry", "busy", 1)
    assert 30 < found.waits[0].until.timestamp() - client._ctx.now_us() / 1e6 <= 60
    client.retry("s")  # a person does not have to wait
    assert status_of(client, "s").waits[0].kind == "worker"


def test_a_failed_run_can_be_retried_but_neither_a_completed_nor_a_foreign_one(client, names):
    @runnable("fine", registry=names)
    def fine(run):
        return 1

    client.start("fine", session_id="s")
    drain(client, names)
    with pytest.raises(ConflictError, match="has completed"):
        client.retry("s")
    with client.run("by-hand"):
        pass
    with pytest.raises(UsageError, match="start its program"):
        client.retry("by-hand")


def test_a_function_or_version_that_is_not_known_is_left_alone(client, names):
    @runnable("known", version=2, registry=names)
    def known(run):
        return 2

    client.start("unknown", session_id="unknown")
    client.start("known", session_id="old", version=1)
    client.start("known", session_id="new", version=2)
    client.start("known", session_id="any", version="")
    assert drain(client, names) == 2
    assert {one.session_id: str(one.status) for one in client.runs()} == {
        "unknown": "waiting",
        "old": "waiting",
        "new": "completed",
        "any": "completed",
    }
    others = Runnables()
    runnable("known", version=1, registry=others)(lambda run: 1)
    runnable("unknown", registry=others)(lambda run: 0)
    assert drain(client, others) == 2
    assert status_of(client, "old").result == 1


def test_a_new_version_continues_the_runs_that_it_resumes(client, names):
    @runnable("known", version=2, resumes=[1], registry=names)
    def known(run):
        return 2

    client.start("known", session_id="old", version=1)
    assert drain(client, names) == 1
    found = status_of(client, "old")
    assert (found.result, found.version) == (2, "2")


@pytest.mark.slow
def test_a_run_may_begin_later(client, names):
    @runnable("later", registry=names)
    def later(run):
        return run._core.ctx.now_us()  # by the clock that the worker goes by, which may be a server's

    tomorrow = datetime.now(UTC) + timedelta(days=1)
    client.start("later", session_id="tomorrow", at=tomorrow)
    assert drain(client, names) == 0
    found = status_of(client, "tomorrow")
    assert (found.status, found.waits[0].kind) == ("waiting", "timer")
    assert abs((found.waits[0].until - tomorrow).total_seconds()) < 0.001
    moment = datetime.now(UTC) + timedelta(seconds=1)
    client.start("later", session_id="s", at=moment)
    while status_of(client, "s").status != "completed":
        drain(client, names)
        time.sleep(0.05)
    assert status_of(client, "s").result >= moment.timestamp() * 1e6
    with pytest.raises(UsageError, match="time zone"):
        client.start("later", at=datetime.now())


@pytest.mark.slow
def test_a_sleep_holds_no_process_under_a_worker_and_is_not_begun_again(client, names):
    lives = []

    @runnable("naps", registry=names)
    def naps(run):
        lives.append(run._core.ctx.now_us())  # by the clock that the worker goes by, which may be a server's
        run.step("before", lambda: 1)
        run.sleep(3)  # a wait of up to a second would stay in the process
        return run.step("after", lambda: 2)

    client.start("naps", session_id="s")
    assert drain(client, names) == 1
    found = status_of(client, "s")
    assert (found.status, found.waits[0].kind, found.holder) == ("waiting", "timer", None)
    until = found.waits[0].until
    while status_of(client, "s").status != "completed":
        drain(client, names)
        time.sleep(0.05)
    assert len(lives) == 2
    assert lives[1] >= until.timestamp() * 1e6
    assert lives[1] - lives[0] >= 3_000_000


@pytest.mark.slow
def test_a_sleep_in_a_run_of_ones_own_waits_for_the_rest(client):
    begun = time.monotonic()
    with pytest.raises(KeyError), client.run("s") as run:
        run.sleep(3)
        raise KeyError
    assert time.monotonic() - begun >= 3
    with client.run("s") as run:
        begun = time.monotonic()
        run.sleep(3)
        assert time.monotonic() - begun < 3


def test_a_run_that_waits_for_approval_is_taken_again_once_it_is_decided(client, names):
    @runnable("pays", registry=names)
    def pays(run):
        return run.effect("pay", lambda amount: f"paid {amount}", amount=5, approve="finance", key="k")

    client.start("pays", session_id="s")
    drain(client, names)
    found = status_of(client, "s")
    assert (found.status, found.waits[0].kind) == ("waiting", "approval")
    assert drain(client, names) == 0
    [asked] = client.approvals("s")
    client.decide(asked.approval_id, "approve", by="ann")
    assert status_of(client, "s").waits[0].kind == "worker"
    assert drain(client, names) == 1
    assert status_of(client, "s").result == "paid 5"


def test_a_run_in_doubt_is_taken_again_once_a_person_has_decided(client, names):
    @runnable("pays", registry=names, retry=Retry(attempts=2, seconds=0))
    def pays(run):
        def pay(amount):
            raise OSError("connection lost")

        return run.effect("pay", pay, amount=5, key="k")

    client.start("pays", session_id="s")
    for _ in range(3):
        drain(client, names)
    found = status_of(client, "s")
    [effect] = client.effects("s", in_doubt=True)
    assert (found.status, found.in_doubt) == ("in doubt", (effect.effect_id,))
    assert drain(client, names) == 0
    client.resolve_effect(effect.effect_id, "done", result="receipt", by="ann")
    assert drain(client, names) == 1
    assert status_of(client, "s").result == "receipt"


def test_a_cancelled_run_is_not_taken(client, names):
    runnable("fine", registry=names)(lambda run: 1)
    client.start("fine", session_id="s")
    client.cancel("s", by="ann")
    assert drain(client, names) == 0
    assert status_of(client, "s").status == "cancelled"
    with pytest.raises(ConflictError):
        client.retry("s")


@pytest.mark.slow
def test_a_run_has_a_time_limit_sync_or_not(client, names):
    released, late = threading.Event(), threading.Event()

    @runnable("hangs", registry=names, timeout=0.5)
    def hangs(run):
        try:
            run.step("one", lambda: 1)  # on a slow machine the time may be over here
            released.wait(120)
            run.step("late", lambda: 2)
        finally:
            late.set()

    @runnable("awaits", registry=names, timeout=0.5)
    async def awaits(run):
        await run.step("one", lambda: 1)
        await asyncio.sleep(120)

    for name in ("hangs", "awaits"):
        client.start(name, session_id=name)
    begun = time.monotonic()
    assert drain(client, names) == 2
    assert time.monotonic() - begun < 60
    for name in ("hangs", "awaits"):
        found = status_of(client, name)
        assert (found.status, found.failure.error_type) == ("failed", "holdfast.errors.RunTimeoutError")
    saves = status_of(client, "hangs").saves
    released.set()
    assert late.wait(60)
    assert status_of(client, "hangs").saves == saves  # the late result is discarded


@pytest.mark.slow
def test_a_time_limit_that_passes_before_the_run_is_opened_ends_it(client, names, monkeypatch):
    def open_late(*args):
        time.sleep(1)
        return opened(*args)

    opened = api.open_sync_run
    monkeypatch.setattr(api, "open_sync_run", open_late)

    @runnable("hangs", registry=names, timeout=0.5)
    def hangs(run):
        time.sleep(2)

    client.start("hangs", session_id="hangs")
    assert drain(client, names) == 1
    found = status_of(client, "hangs")
    assert (found.status, found.failure.error_type) == ("failed", "holdfast.errors.RunTimeoutError")


@pytest.mark.slow
def test_a_worker_that_is_stopped_finishes_the_step_and_hands_back(client, names):
    steps = []

    @runnable("long", registry=names)
    async def long(run):
        for number in range(50):
            await run.step("one", asyncio.sleep, 0.05, number)
            steps.append(number)
        return len(steps)

    stop = threading.Event()

    def stop_later():
        while len(steps) < 3:
            time.sleep(0.01)
        stop.set()

    threading.Thread(target=stop_later).start()
    client.start("long", session_id="s")
    client.work(runnables=names, stop=stop)
    found = status_of(client, "s")
    assert (found.status, found.waits[0].kind, found.attempts, found.failure) == ("waiting", "worker", 0, None)
    done = len(steps)
    assert 3 <= done < 50
    assert drain(client, names) == 1
    assert status_of(client, "s").result == done + 50  # each life asks for all of them
    assert status_of(client, "s").saves <= 52


@pytest.mark.slow
def test_parallel_branches_are_not_cut_off_by_one_that_sleeps(client, names):
    carried_out = []

    def slow():
        time.sleep(1.2)
        carried_out.append(1)
        return "sent"

    @runnable("both", registry=names)
    async def both(run):
        async with asyncio.TaskGroup() as group:
            sent = group.create_task(run.effect("send", slow, key="mail"))
            group.create_task(run.sleep(2.5))
        return sent.result()

    client.start("both", session_id="s")
    while status_of(client, "s").status != "completed":
        drain(client, names)
        time.sleep(0.05)
    assert carried_out == [1]
    assert status_of(client, "s").result == "sent"


def test_started_runs_survive_gc_and_go_with_their_tree(client, names):
    runnable("fine", registry=names)(lambda run: run.step("one", lambda: 1))
    client.start("fine", session_id="s", at=datetime.now(UTC) + timedelta(seconds=0.4))
    client.gc()
    time.sleep(0.5)
    assert drain(client, names) == 1
    assert status_of(client, "s").result == 1
    for one in client.timeline("s"):
        client.expire(one.checkpoint_id)
    client.gc()
    assert status_of(client, "s") is None


def test_wrong_arguments_of_workers_are_refused(client, names):
    with pytest.raises(UsageError, match="no function is named"):
        drain(client, names)
    runnable("fine", registry=names)(lambda run: 1)
    with pytest.raises(UsageError, match="concurrency"):
        drain(client, names, concurrency=0)
    with pytest.raises(UsageError, match="is the name of"):
        runnable("fine", registry=names)(test_wrong_arguments_of_workers_are_refused)
    with pytest.raises(UsageError, match="has no option"):
        runnable("fine", registry=names, workers=3)


def test_the_async_client_works_too(tmp_path, names):
    @runnable("both", registry=names)
    async def both(run, number):
        return await run.step("one", lambda: number)

    @runnable("plain", registry=names)
    def plain(run, number):
        return run.step("one", lambda: number)

    async def main():
        async with Client.sqlite(tmp_path / "store.db") as client:
            for number in range(5):
                await client.start("both", number, session_id=f"b{number}")
                await client.start("plain", number, session_id=f"p{number}")
            assert await client.work(drain=True, runnables=names) == 10
            assert {one.result for one in await client.runs(status="completed")} == set(range(5))

    asyncio.run(main())


def test_a_contract_types_the_argument_at_start_and_at_work(client, names):
    from dataclasses import dataclass

    from holdfast import ContractError
    from holdfast.coordination.contract import Contracts

    @dataclass
    class Order:
        number: int

    order = Contracts().declare("order", 1, Order)

    @runnable("typed.order", contract=order, registry=names)
    def typed(run, given):
        return given.number, type(given).__name__

    # The process that starts a run checks its argument by the functions that it has named itself.
    DECLARED.add(names.newest("typed.order"))
    with pytest.raises(ContractError):
        client.start("typed.order", {"number": "seven"}, session_id="wrong")
    with pytest.raises(UsageError, match="one argument"):
        client.start("typed.order", Order(1), Order(2))
    assert client.run_status("wrong") is None
    client.start("typed.order", Order(7), session_id="s")
    drain(client, names)
    assert status_of(client, "s").result == (7, "Order")


def test_migrations_are_checked_for_runs_that_are_still_to_be_carried_out(client):
    client.start("gone", session_id="gone")
    client.start("known", session_id="old", version=1)
    client.start("known", session_id="new", version=2)
    assert client.check_migrations().ok  # no function is named here: nothing is known about them
    runnable("known", version=2)(lambda run: 1)
    report = client.check_migrations()
    assert {(one.session_id, one.reason) for one in report.problems} == {
        ("gone", "unknown_function"),
        ("old", "unknown_function"),
    }
    assert client.check_migrations("new").ok
