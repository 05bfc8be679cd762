"""What a message costs: commits and reads of the store, counted where they reach the backend."""

from __future__ import annotations

import threading
import time

import pytest

from holdfast import Message, RunCancelledError, contract
from holdfast.operations import publish as publishing
from holdfast.runs import receive

pytestmark = pytest.mark.every_store
COUNTED = contract("counted", 1, {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
COUNT = 20


@pytest.fixture(autouse=True)
def unchecked_backlog(monkeypatch):
    """Once a second a publisher counts the messages that wait: not here."""
    monkeypatch.setattr(publishing, "CHECK_SECONDS", 3600.0)


@pytest.mark.parametrize("declared", [None, COUNTED])
def test_a_message_is_one_commit_without_a_read(store, declared):
    client, recorder = store.recorded()
    client.publish("t", {"n": 0}, contract=declared)
    client.save("a", session_id="s", execution_state={})
    recorder.forget()
    for n in range(COUNT):
        client.publish("t", {"n": n}, contract=declared)
        client.save("a", session_id="s", execution_state={}, publish=[Message("t", {"n": n}, contract=declared)])
    assert dict(recorder.calls) == {"commit_all": 2 * COUNT}
    assert sum(1 for _ in client.messages("t")) == 1 + 2 * COUNT


def test_a_message_of_a_run_is_one_commit_and_one_read_of_the_ledger(store):
    client, recorder = store.recorded()
    with client.run("s", agent_id="a") as run:
        run.publish("t", {"n": -1}, contract=COUNTED)
        recorder.forget()
        for n in range(COUNT):
            run.publish("t", {"n": n}, contract=COUNTED)
        assert dict(recorder.calls) == {"commit_all": COUNT, "rows": COUNT}


def test_an_idle_subscription_reads_once_a_poll(store):
    client, recorder = store.recorded()
    client.publish("t", 0)
    polls = []

    def poll(seen: int, seconds: float) -> object:
        """A server tells of our own commits a moment later: then polls find it at rest."""
        polls.append({name: times for name, times in recorder.calls.items() if name != "listen"})
        recorder.forget()
        if polls[-5:] == [{"changes": 1}] * 5:
            raise KeyError
        assert len(polls) < 2_000, polls[-5:]
        return wait(seen, seconds)

    wait = client._ctx.backend.inner.wait_for_commit
    with client.subscribe("t", "g", poll_seconds=0.01) as messages:
        assert next(messages).ack()
        recorder.forget()
        client._ctx.backend.inner.wait_for_commit = poll
        with pytest.raises(KeyError):
            next(messages)
        client._ctx.backend.inner.wait_for_commit = wait


def test_an_idle_receiver_reads_once_a_poll(store, monkeypatch):
    """And sometimes whether its run was cancelled."""
    monkeypatch.setattr(receive, "LEASE_CHECK_SECONDS", 3600.0)
    client, recorder = store.recorded()
    client.publish("t", 0)
    polls = []

    def poll(seen: int, seconds: float) -> object:
        polls.append({name: times for name, times in recorder.calls.items() if name != "listen"})
        recorder.forget()
        if polls[-5:] == [{"changes": 1}] * 5:
            raise KeyError
        assert len(polls) < 2_000, polls[-5:]
        return wait(seen, min(seconds, 0.01))

    with pytest.raises(KeyError), client.run("s", agent_id="a") as run:
        backend = run._core.ctx.backend
        wait = backend.wait_for_commit
        for message in run.receive("t", "g"):
            assert message.value == 0
            monkeypatch.setattr(backend, "wait_for_commit", poll)


def test_an_idle_receiver_notices_that_its_run_was_cancelled(store, monkeypatch):
    monkeypatch.setattr(receive, "LEASE_CHECK_SECONDS", 0.3)
    client, other = store.client(), store.client()
    ended: list[BaseException] = []
    is_idle = threading.Event()

    def work() -> None:
        try:
            with client.run("s", agent_id="a") as run:
                for _ in run.receive("t", "g", timeout=60):
                    is_idle.set()
        except RunCancelledError as error:
            ended.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    other.publish("t", 0)
    assert is_idle.wait(60)
    time.sleep(0.5)
    other.cancel("s", by="ana", reason="enough")
    thread.join(60)
    assert len(ended) == 1


def test_a_message_is_received_by_two_reads_and_two_commits(store):
    """The group's row and the next message; the claim and the consumer's checkpoint."""
    client, recorder = store.recorded()
    for n in range(32):
        client.publish("t", n)
    with client.run("s", agent_id="a") as run:
        messages = run.receive("t", "g", timeout=0)
        next(messages)  # the group is created
        recorder.forget()
        got = [one.value for one in messages]
    assert got == list(range(1, 32))
    assert recorder.calls["commit_all"] <= 32 * 2.2
    assert recorder.calls["changes"] <= 34
    assert recorder.calls["rows"] <= 36


def test_a_batch_of_messages_is_read_at_once(store):
    client, recorder = store.recorded()
    for n in range(64):
        client.publish("t", n)
    with client.run("s", agent_id="a") as run:
        messages = run.receive("t", "g", batch=16, timeout=0)
        next(messages)  # the group is created
        recorder.forget()
        got = [one.value for one in messages]
    assert got == list(range(1, 64))
    assert recorder.calls["commit_all"] <= 64 * 1.2
    assert recorder.calls["records"] <= 1  # of the session's end
    assert recorder.calls["changes"] <= 5
