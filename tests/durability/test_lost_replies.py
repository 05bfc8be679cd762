"""Connections that take the answer with them, after the server has applied what it was asked (R9)."""

from __future__ import annotations

import pytest
from campaign import SOAK, tally
from servers.writers import until

from holdfast import StoreError, SyncClient

pytestmark = [pytest.mark.servers, pytest.mark.slow]
TIMES = 200 if SOAK else 3
NOT_KNOWN = "may have been carried out|not known whether"
MARKED = "the marked agent"  # whose commit is to be lost: other calls may pass at the same time


def ids(url: str, session: str) -> list[str]:
    with SyncClient.open(url) as client:
        return [entry.checkpoint_id for entry in client.timeline(session_id=session, limit=None)][::-1]


def test_a_commit_whose_answer_was_lost_is_an_error_that_says_so_and_repeating_it_is_safe(proxied):
    proxy, through, past = proxied
    with SyncClient.open(through) as client:
        saved: list[str] = []
        for time in range(1, TIMES + 1):
            saved.append(client.save("a", session_id="s", execution_state={"n": -time}))
            proxy.eat_reply(MARKED.encode())
            with pytest.raises(StoreError, match=NOT_KNOWN) as caught:
                client.save(MARKED, session_id="s", execution_state={"n": time})
            assert proxy.eaten == time
            saved.append(caught.value.checkpoint_id)
            until(lambda: ids(past, "s") == saved, "what the server was asked")  # the control: it was carried out
            again = client.save(MARKED, session_id="s", execution_state={"n": time}, checkpoint_id=saved[-1])
            assert again == saved[-1]
            assert ids(past, "s") == saved
        saved.append(client.save("a", session_id="s", execution_state={"n": -1}))
        assert ids(past, "s") == saved
    tally(f"lost replies, {through.partition(':')[0]}", done=TIMES, wrong=0)


def test_a_commit_that_was_lost_on_its_way_is_the_same_error_and_repeating_it_stores_it(proxied):
    proxy, through, past = proxied
    with SyncClient.open(through) as client:
        first = client.save("a", session_id="s", execution_state={"n": 0})
        proxy.eat_request(MARKED.encode())
        with pytest.raises(StoreError, match=NOT_KNOWN) as caught:
            client.save(MARKED, session_id="s", execution_state={"n": 1})
        unsure = caught.value.checkpoint_id
        assert ids(past, "s") == [first]
        assert client.save(MARKED, session_id="s", execution_state={"n": 1}, checkpoint_id=unsure) == unsure
        assert ids(past, "s") == [first, unsure]


def test_control_who_repeats_without_the_id_saves_twice(proxied):
    proxy, through, past = proxied
    with SyncClient.open(through) as client:
        client.save("a", session_id="s", execution_state={"n": 0})
        proxy.eat_reply(MARKED.encode())
        with pytest.raises(StoreError):
            client.save(MARKED, session_id="s", execution_state={"n": 1})
        client.save("a", session_id="s", execution_state={"n": 1})
        until(lambda: len(ids(past, "s")) == 3, "the second copy")


def test_a_read_whose_answer_was_lost_is_repeated(proxied):
    proxy, through, _ = proxied
    with SyncClient.open(through) as client:
        saved = client.save("a", session_id="s", execution_state={"n": 0})
    with SyncClient.open(through) as client:
        assert client.sessions()
        proxy.eat_reply(b"")
        assert client.restore(saved).execution_state == {"n": 0}
        assert proxy.eaten == 1
