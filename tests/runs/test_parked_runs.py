"""Runs that wait for delegated work or for messages: without a process under a worker, and taken again in time."""

import asyncio
import threading
import time
from dataclasses import dataclass

import pytest

from holdfast import Client, ConflictError, Retry, Runnables, runnable
from holdfast.backends.bridge.step import run_inline
from holdfast.backends.port import STORE, Commit
from holdfast.coordination.contract import Contracts
from holdfast.coordination.lease import SyncLease
from holdfast.format.rows.run import DueRow
from holdfast.operations import due

pytestmark = pytest.mark.every_store


@pytest.fixture
def names():
    return Runnables()


def drain(client, names):
    return client.work(drain=True, runnables=names, concurrency=1)


def wait_of(client, session_id):
    found = client.run_status(session_id)
    assert (found.status, found.holder) == ("waiting", None)
    return found.waits[0]


def until_over(client, names, session_id):
    deadline = time.monotonic() + 120
    while not client.run_status(session_id).is_over:
        assert time.monotonic() < deadline, client.run_status(session_id)
        drain(client, names)
        time.sleep(0.05)
    return client.run_status(session_id)


def test_one_place_is_enough_for_a_run_that_joins_runs_of_another_function(client, names):
    lives = []

    @runnable("check", registry=names)
    def check(run, order):
        return run.step("look", lambda: f"{order} is fine")

    @runnable("orders", registry=names)
    def orders(run, count):
        lives.append(count)
        asked = run.delegate("check", [f"order {number}" for number in range(count)])
        return [one.value for one in run.join(asked).results]

    client.start("orders", 3, session_id="s")
    drain(client, names)
    done = client.run_status("s")
    assert (done.status, done.result) == ("completed", [f"order {number} is fine" for number in range(3)])
    assert len(lives) == 2  # it is taken once all have answered
    assert {one.status for one in client.runs()} == {"completed"}
    assert client.inbox("check") == []


@pytest.mark.slow
def test_one_place_is_enough_for_coroutines_too(client, names):
    @runnable("check", registry=names)
    async def check(run, order):
        return await run.step("look", lambda: f"{order} is fine")

    @runnable("orders", registry=names)
    async def orders(run):
        asked = await run.delegate("check", ["a", "b"])
        first, rest = await asyncio.gather(run.join(asked[:1], key="first"), run.join(asked[1:], key="rest"))
        return [one.value for one in (*first.results, *rest.results)]

    client.start("orders", session_id="s")
    assert until_over(client, names, "s").result == ["a is fine", "b is fine"]


def test_a_joining_run_says_for_whom_it_waits_and_is_not_looked_at_in_vain(client, names):
    @runnable("orders", registry=names)
    def orders(run):
        asked = run.delegate("elsewhere", [1, 2])
        return [one.value for one in run.join(asked, need=1).results]

    client.start("orders", session_id="s")
    assert drain(client, names) == 1
    offered = client.inbox("elsewhere")
    wait = wait_of(client, "s")
    assert (wait.kind, set(wait.targets)) == ("join", {one.checkpoint.session_id for one in offered})
    assert drain(client, names) == 0
    with client.claim(offered[0].handoff_id, "elsewhere") as claim:
        claim.complete("done")
    assert drain(client, names) == 1
    assert client.run_status("s").result == ["done"]


def test_a_delegated_run_that_fails_for_good_answers_with_its_failure(client, names):
    @runnable("check", registry=names, retry=Retry(attempts=2, seconds=0))
    def check(run, order):
        raise ValueError(f"{order} is torn")

    @runnable("orders", registry=names)
    def orders(run):
        found = run.join(run.delegate("check", ["order 1"]))
        return [(one.status, one.error_type, one.message) for one in found.failed]

    client.start("orders", session_id="s")
    done = until_over(client, names, "s")
    assert done.result == [("failed", "ValueError", "order 1 is torn")]
    [child] = client.runs(status="failed")
    assert (child.function, child.attempts) == ("check", 2)
    with pytest.raises(ConflictError, match="has answered"):
        client.retry(child.session_id)


def test_a_cancelled_child_ends_the_wait_of_its_parent(client, names):
    names_of_child = Runnables()
    runnable("check", registry=names_of_child)(lambda run, order: order)

    @runnable("orders", registry=names)
    def orders(run):
        return [one.status for one in run.join(run.delegate("check", [1])).failed]

    client.start("orders", session_id="s")
    drain(client, names)
    client.cancel(wait_of(client, "s").targets[0], by="ann")
    assert drain(client, names) == 1
    assert client.run_status("s").result == ["cancelled"]


@pytest.mark.slow
def test_a_claimant_and_a_worker_do_not_both_carry_out_delegated_work(client, names):
    done = []
    runnable("check", registry=names)(lambda run, order: done.append(order))

    with client.run("boss") as run:
        [asked] = run.delegate("check", ["order 1"])
        assert client.runs(status="waiting") == []  # this process has named no function "check"
    assert drain(client, names) == 0

    @runnable("orders", registry=names)
    def orders(run):
        run.delegate("check", ["order 2"])

    client.start("orders", session_id="s")
    assert client.work(drain=True, runnables=only(names, "orders")) == 1
    [offered] = [one for one in client.inbox("check") if one.handoff_id != asked.handoff_id]
    with client.claim(offered.handoff_id, "check", seconds=30.0) as claim:
        assert drain(client, names) == 0
        claim.complete("by hand")
    until_over(client, names, offered.checkpoint.session_id)
    assert done == []


def only(names, *wanted):
    """A worker that knows some of the functions; what it delegates to the others is started all the same."""
    found = Runnables()
    for name in wanted:
        found.add(names.newest(name))
    found.newest = names.newest
    return found


def test_contracts_type_the_item_and_the_answer_of_a_delegated_run(client, names):
    @dataclass
    class Order:
        number: int

    @dataclass
    class Verdict:
        is_fine: bool

    contracts = Contracts()
    order, verdict = contracts.declare("order", 1, Order), contracts.declare("verdict", 1, Verdict)

    @runnable("check", registry=names, contract=order)
    def check(run, given):
        return {"is_fine": given == Order(7)}

    @runnable("orders", registry=names)
    def orders(run):
        asked = run.delegate("check", [Order(7)], contract=order, returns=verdict)
        return [one.value.is_fine for one in run.join(asked).results]

    client.start("orders", session_id="s")
    assert until_over(client, names, "s").result == [True]


def test_a_run_that_receives_gives_its_place_back_until_there_is_a_message(client, names):
    lives = []

    @runnable("reviewer", registry=names)
    def reviewer(run):
        lives.append(1)
        for message in run.receive("drafts", "reviewers"):
            run.state = {"seen": [*run.state.get("seen", []), message.value]}
            if message.value == "last":
                break
        return run.state["seen"]

    runnable("other", registry=names)(lambda run: "done")
    client.start("reviewer", session_id="s")
    client.start("other", session_id="other")
    drain(client, names)
    assert client.run_status("other").status == "completed"
    wait = wait_of(client, "s")
    assert (wait.kind, wait.targets) == ("receive", ("drafts",))
    assert drain(client, names) == 0
    client.publish("drafts", "first")
    assert drain(client, names) == 1
    assert wait_of(client, "s").kind == "receive"
    with client.run("writer") as run:
        run.publish("drafts", "last")
    until_over(client, names, "s")
    assert client.run_status("s").result == ["first", "last"]
    assert len(lives) == 3


def test_a_run_that_waits_for_a_message_is_taken_again_for_each_new_one(client, names):
    @runnable("waits", registry=names)
    def waits(run):
        return run.wait_for("news", where=lambda one: one.value == "go").value

    client.start("waits", session_id="s")
    assert drain(client, names) == 1
    assert (wait_of(client, "s").kind, wait_of(client, "s").targets) == ("message", ("news",))
    client.publish("news", "not yet")
    assert drain(client, names) == 1
    assert wait_of(client, "s").kind == "message"
    assert drain(client, names) == 0
    client.publish("news", "go")
    assert until_over(client, names, "s").result == "go"


@pytest.mark.slow
def test_the_times_of_waits_without_a_process_end_them(client, names):
    @runnable("join", registry=names)
    def join(run):
        return len(run.join(run.delegate("elsewhere", [1]), timeout=6).missing)

    @runnable("receive", registry=names)
    def receive(run):
        return [one.value for one in run.receive("drafts", "reviewers", timeout=6)]

    @runnable("message", registry=names)
    def message(run):
        return run.wait_for("news", timeout=6)

    began = time.monotonic()
    for name in ("join", "receive", "message"):
        client.start(name, session_id=name)
    assert drain(client, names) == 3
    for name in ("join", "receive", "message"):
        assert wait_of(client, name).kind == name
        assert wait_of(client, name).until is not None
    assert until_over(client, names, "join").result == 1
    assert until_over(client, names, "receive").result == []
    assert until_over(client, names, "message").result is None
    assert time.monotonic() - began >= 6


@pytest.mark.slow
def test_a_waiting_worker_wakes_for_an_answer_and_for_a_message(client, names):
    @runnable("both", registry=names)
    def both(run):
        run.join(run.delegate("elsewhere", [1]))
        return run.wait_for("news").value

    stop = threading.Event()
    worker = threading.Thread(target=client.work, kwargs={"runnables": names, "stop": stop, "concurrency": 1})
    worker.start()
    try:
        client.start("both", session_id="s")
        deadline = time.monotonic() + 120
        while [one.kind for one in client.run_status("s").waits] != ["join"]:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        [offered] = client.inbox("elsewhere")
        with client.claim(offered.handoff_id, "elsewhere") as claim:
            claim.complete(None)
        while [one.kind for one in client.run_status("s").waits] != ["message"]:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        client.publish("news", "here")
        while not client.run_status("s").is_over:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        stop.set()
        worker.join()
    assert client.run_status("s").result == "here"


@pytest.mark.slow
def test_whichever_of_parallel_waits_is_over_first_wakes_the_run(client, names):
    @runnable("first", registry=names)
    async def first(run):
        asked = await run.delegate("elsewhere", [1])
        waits = [asyncio.ensure_future(run.sleep(3600, key="long")), asyncio.ensure_future(run.join(asked))]
        done, left = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for one in left:
            one.cancel()
        return [one.result().results[0].value for one in done]

    client.start("first", session_id="s")
    assert drain(client, names) == 1
    found = client.run_status("s")
    assert {one.kind for one in found.waits} == {"join", "timer"}
    [offered] = client.inbox("elsewhere")
    with client.claim(offered.handoff_id, "elsewhere") as claim:
        claim.complete("early")
    assert until_over(client, names, "s").result == ["early"]


@pytest.mark.slow
def test_a_failure_that_the_program_has_handled_stays_recorded_while_it_waits(client, names):
    tries = []

    def fails():
        tries.append(1)
        raise ValueError("busy")

    @runnable("patient", registry=names)
    def patient(run):
        try:
            run.step("try", fails)
        except ValueError:
            run.sleep(1.2)
            return run.step("else", lambda: "otherwise")

    client.start("patient", session_id="s")
    assert until_over(client, names, "s").result == "otherwise"
    assert tries == [1]


@pytest.mark.slow
def test_a_worker_that_died_after_the_answer_leaves_nothing_to_do_again(client, names, monkeypatch):
    lives, died = [], []

    @runnable("check", registry=names)
    def check(run, order):
        lives.append(order)
        return run.step("look", lambda: "fine")

    @runnable("orders", registry=names)
    def orders(run):
        return [one.value for one in run.join(run.delegate("check", ["order 1"])).results]

    release = SyncLease.release

    def die_once(lease):
        if ".check." in lease.session_id and not died:
            lease._stop_renewing()  # so it runs out
            died.append(lease.session_id)
            return False
        return release(lease)

    monkeypatch.setattr(SyncLease, "release", die_once)
    client.start("orders", session_id="s")
    deadline = time.monotonic() + 120
    while not (died and client.run_status(died[0]).status == "completed"):
        assert time.monotonic() < deadline
        client.work(drain=True, runnables=names, lease_seconds=4)
        time.sleep(0.1)
    assert client.run_status("s").result == ["fine"]
    assert (client.run_status(died[0]).result, lives) == ("fine", ["order 1"])


@pytest.mark.slow
def test_a_look_before_the_lease_of_a_dead_worker_ends_does_not_forget_the_run(client, names, monkeypatch):
    """The run has its result, but its worker died before it released the lease, which it had renewed."""
    died = []
    runnable("check", registry=names)(lambda run, order: order)
    runnable("orders", registry=names)(lambda run: run.join(run.delegate("check", ["order 1"])).values)
    release = SyncLease.release

    def die_once(lease):
        if ".check." in lease.session_id and not died:
            lease._stop_renewing()
            died.append(lease.session_id)
            return False
        return release(lease)

    monkeypatch.setattr(SyncLease, "release", die_once)
    client.start("orders", session_id="s")
    deadline = time.monotonic() + 60
    while not died:
        client.work(drain=True, runnables=names, lease_seconds=3)
        assert time.monotonic() < deadline
    ctx = client._ctx
    [hint] = [found for found in run_inline(due.page(ctx, None))[0] if found.session == died[0].encode()]
    run_inline(due.move(ctx, hint, ctx.now_us() - 1_000_000))
    while client.run_status(died[0]).status != "completed":
        client.work(drain=True, runnables=names)
        assert time.monotonic() < deadline, client.run_status(died[0])
        time.sleep(0.05)
    assert client.run_status("s").result == ["order 1"]


def test_a_hint_that_may_be_ahead_of_its_commit_is_looked_at_again(client, names, monkeypatch):
    runnable("late", registry=names)(lambda run: 1)
    ctx = client._ctx
    run_inline(ctx.backend.rows([]))  # the store is open
    splits = ctx.backend.capabilities.splits
    hint = DueRow(ctx.now_us(), b"s", ctx.new_id(None), "late", "")
    run_inline(ctx.backend.commit(Commit(tree=STORE, rows=[hint.write()])))
    monkeypatch.setattr(due, "RETRY_US", (1_000, 1_000))
    looks = []
    drop = due.drop

    async def counting_drop(ctx, row, **options):
        looks.append(row.session)
        await drop(ctx, row, **options)

    monkeypatch.setattr(due, "drop", counting_drop)
    while run_inline(due.page(ctx, None))[0]:
        assert drain(client, names) == 0
        time.sleep(0.01)
    assert looks == [b"s"] * (3 if splits else 1)


@pytest.mark.slow
def test_many_hints_at_a_run_that_waits_become_one(client, names):
    runnable("boss", registry=names)(lambda run: len(run.join(run.delegate("elsewhere", range(12))).results))
    client.start("boss", session_id="s")
    drain(client, names)
    for offered in client.inbox("elsewhere")[:10]:
        with client.claim(offered.handoff_id, "elsewhere") as claim:
            claim.complete(None)
    assert drain(client, names) == 0
    assert len(run_inline(due.page(client._ctx, None))[0]) <= 2


def test_a_parked_run_in_the_async_client(tmp_path, names):
    @runnable("check", registry=names)
    def check(run, order):
        return order

    @runnable("orders", registry=names)
    async def orders(run):
        found = await run.join(await run.delegate("check", ["a"]))
        return [one.value for one in found.results]

    async def main():
        async with Client.sqlite(tmp_path / "store.db") as client:
            await client.start("orders", session_id="s")
            await client.work(drain=True, runnables=names, concurrency=1)
            assert (await client.run_status("s")).result == ["a"]

    asyncio.run(main())
