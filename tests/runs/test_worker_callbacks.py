"""Code of the program that a worker calls besides its functions, and that raises: no run is lost or repeated by it."""

import asyncio
import threading

import pytest

from holdfast import Retry, Runnables, SyncClient, UsageError, runnable


@pytest.fixture
def names():
    return Runnables()


class UnprintableError(Exception):
    def __str__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize("is_in_step", [False, True])
def test_an_exception_that_can_not_be_shown_counts_as_an_attempt(quick, names, is_in_step):
    lives = []

    def fail():
        raise UnprintableError

    @runnable("fails", registry=names, retry=Retry(attempts=2, seconds=0))
    def fails(run):
        lives.append(run.session_id)
        run.step("one", fail) if is_in_step else fail()

    quick.start("fails", session_id="s")
    while not quick.run_status("s").is_over:
        quick.work(drain=True, runnables=names)
    found = quick.run_status("s")
    assert (len(lives), found.attempts) == (2, 2)
    assert found.failure.error_type.endswith("UnprintableError")
    assert found.failure.message == "its message can't be shown: RuntimeError was raised"


def test_a_failure_is_kept_without_its_text_if_a_rule_of_redaction_raises(tmp_path, names, monkeypatch):
    def broken(*_):
        raise KeyError("rule")

    @runnable("fails", registry=names, retry=1)
    def fails(run):
        raise ValueError("sk-secret")

    with SyncClient.sqlite(tmp_path / "store.db") as client:
        client.start("fails", session_id="s")
        monkeypatch.setattr(client._ctx.codec, "redact_text", broken)
        client.work(drain=True, runnables=names)
        found = client.run_status("s")
    assert found.failure.message == "it can't be shown: KeyError was raised"
    assert "sk-secret" not in repr(found)


def test_a_wait_of_any_length_is_kept(quick, names):
    @runnable("fails", registry=names, retry=Retry(attempts=2, seconds=1e300, most_seconds=float("inf")))
    def fails(run):
        raise ValueError

    quick.start("fails", session_id="s")
    quick.work(drain=True, runnables=names)
    found = quick.run_status("s")
    assert (found.status, found.attempts, found.waits[0].kind) == ("waiting", 1, "retry")
    assert quick.work(drain=True, runnables=names) == 0


def test_what_is_notified_may_raise(quick, names, caplog):
    @runnable("fine", registry=names)
    def fine(run):
        run.progress(1, 2)
        return 1

    @runnable("awaited", registry=names)
    async def awaited(run):
        await run.progress(1, 2)
        return 1

    def broken(*_):
        raise BrokenPipeError

    for name in ("fine", "awaited"):
        quick.start(name, session_id=name)
    assert quick.work(drain=True, runnables=names, notify=broken, notify_progress=broken) == 2
    assert {one.status for one in quick.runs()} == {"completed"}
    assert {one.attempts for one in quick.runs()} == {0}
    assert {one.message for one in caplog.records} == {"notify raised"}


@pytest.mark.parametrize("wrong", [{"stop": 5}, {"stop": asyncio.Event()}, {"runnables": {}}])
def test_wrong_arguments_of_work_are_refused(quick, names, wrong):
    runnable("fine", registry=names)(lambda run: 1)
    with pytest.raises(UsageError):
        quick.work(drain=True, **{"runnables": names, "stop": threading.Event(), **wrong})


def test_a_run_that_is_cancelled_at_work_is_told_as_such(quick, names):
    told = []

    @runnable("long", registry=names)
    def long(run):
        run.step("one", lambda: quick.cancel("s", by="ann"))
        run.step("two", lambda: 2)

    quick.start("long", session_id="s")
    assert quick.work(drain=True, runnables=names, notify=lambda *words: told.append(words)) == 1
    assert told == [("long", "s", "taken"), ("long", "s", "cancelled")]
    assert quick.run_status("s").status == "cancelled"
