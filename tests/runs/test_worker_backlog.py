"""How a worker finds its runs: behind those of other workers, beside damaged ones, at once, and with few reads."""

import threading
import time
from contextlib import contextmanager

import pytest

from holdfast import Runnables, runnable
from holdfast.backends.bridge.step import run_inline
from holdfast.backends.port import STORE, Commit, RowWrite
from holdfast.format.rows import run as rows
from holdfast.format.rows.head import session_key
from holdfast.format.rows.run import DueRow
from holdfast.operations import due, lookup
from holdfast.runs.worker import PAGES, WorkerOptions

OTHERS = due.PAGE * (PAGES + 4)  # more than a worker reads in one look where it knows some of them


@pytest.fixture
def names():
    made = Runnables()
    runnable("mine", registry=made)(lambda run: "done")
    return made


def add_hints(client, count, at_us):
    """Write hints at runs of a function that no worker here knows."""
    ctx = client._ctx
    run_inline(ctx.backend.rows([]))  # the store is open
    tree = ctx.new_id(None)
    hints = [DueRow(at_us + number, b"other %d" % number, tree, "theirs", "1").write() for number in range(count)]
    run_inline(ctx.backend.commit(Commit(tree=STORE, rows=hints)))


@contextmanager
def working(client, names):
    stop = threading.Event()
    thread = threading.Thread(target=client.work, kwargs={"runnables": names, "stop": stop}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)
        assert not thread.is_alive()


def wait_until_completed(client, session):
    deadline = time.monotonic() + 60
    while client.run_status(session).status != "completed":
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("seconds_ago", [1, 3600])
def test_a_worker_that_drains_carries_out_what_is_behind_the_runs_of_others(client, names, seconds_ago):
    add_hints(client, OTHERS, client._ctx.now_us() - seconds_ago * 1_000_000)
    for number in range(3):
        client.start("mine", session_id=f"s{number}")
    assert client.work(drain=True, runnables=names) == 3
    assert client.work(drain=True, runnables=names) == 0


@pytest.mark.slow
def test_a_worker_finds_its_runs_behind_and_among_those_of_others(client, names, monkeypatch):
    hour_ago = client._ctx.now_us() - 3_600_000_000
    add_hints(client, OTHERS, hour_ago)
    with working(client, names):
        client.start("mine", session_id="behind")
        wait_until_completed(client, "behind")
        with monkeypatch.context() as patched:
            patched.setattr(client._ctx, "now_us", lambda: hour_ago + 5)
            client.start("mine", session_id="among")  # by a clock that is late
        wait_until_completed(client, "among")


@pytest.mark.slow
def test_runs_of_others_are_read_again_only_in_part(quick, names, monkeypatch):
    pages = []

    async def counted(*given):
        pages.append(given)
        return await page(*given)

    page = due.page
    monkeypatch.setattr(due, "page", counted)
    add_hints(quick, 20 * PAGES * due.PAGE, 1)
    with working(quick, names):
        deadline = time.monotonic() + 60
        while len(pages) < 20 * PAGES:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(1)
        pages.clear()
        began = time.monotonic()
        while time.monotonic() < began + 3 or len(pages) < PAGES:
            assert time.monotonic() < began + 60
            time.sleep(0.02)
        found, seconds = len(pages), time.monotonic() - began
    assert PAGES <= found <= (seconds + 3) * (PAGES + 1)  # one look a second


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_a_start_by_another_thread_wakes_an_idle_worker(kind, memory_store, sqlite_store, names, monkeypatch):
    monkeypatch.setitem(WorkerOptions.__init__.__kwdefaults__, "poll_seconds", 600.0)  # polling would take too long
    client = (memory_store if kind == "memory" else sqlite_store).client()
    with working(client, names):
        for number in range(3):
            time.sleep(1)
            client.start("mine", session_id=f"s{number}")
            wait_until_completed(client, f"s{number}")


@pytest.mark.slow
@pytest.mark.servers
@pytest.mark.parametrize("shared_store", ["postgres", "redis"], indirect=True)
def test_a_start_and_a_decision_of_another_process_wake_an_idle_worker(shared_store, names, monkeypatch):
    @runnable("asks", registry=names)
    def asks(run):
        return run.effect("pay", lambda amount: "paid", amount=5, approve="finance", key="k")

    monkeypatch.setitem(WorkerOptions.__init__.__kwdefaults__, "poll_seconds", 600.0)
    client = shared_store.client()  # with connections of its own
    with working(shared_store.client(), names):
        time.sleep(2)
        client.start("mine", session_id="s")
        wait_until_completed(client, "s")
        client.start("asks", session_id="t")
        deadline = time.monotonic() + 60
        while not (asked := client.approvals("t")):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(2)
        client.decide(asked[0].approval_id, "approve", by="ann")
        wait_until_completed(client, "t")


@pytest.mark.slow
def test_commits_of_others_make_a_worker_look_a_few_times_a_second(quick, names, monkeypatch):
    pages = []

    async def counted(*given):
        pages.append(given)
        return await page(*given)

    page = due.page
    with working(quick, names):
        monkeypatch.setattr(due, "page", counted)
        began = time.monotonic()
        while time.monotonic() < began + 3 or not pages:
            assert time.monotonic() < began + 60
            quick.save("a", session_id="busy", execution_state={})
            time.sleep(0.005)
        found, seconds = len(pages), time.monotonic() - began
    assert 1 <= found <= 10 + 5 * seconds


def test_a_damaged_run_is_looked_at_again_later(quick, names, monkeypatch, caplog):
    quick.start("mine", session_id="damaged")
    quick.start("mine", session_id="fine")
    ctx, key = quick._ctx, session_key("damaged")
    tree = run_inline(lookup.find_tree(ctx, key))
    run_inline(ctx.backend.commit(Commit(tree=tree, rows=[RowWrite(rows.run_key(key, tree), b"torn")])))
    for _ in range(3):
        quick.work(drain=True, runnables=names)
    assert quick.run_status("fine").status == "completed"
    assert [one.message for one in caplog.records if one.name == "holdfast.work"] == ["run not taken"]
    [hint], _ = run_inline(due.page(ctx, None))
    assert 0 < hint.at_us - ctx.now_us() <= 30_000_000
