"""Small segments of a sealed store: they are merged, as each costs an encryption when it is read."""

from __future__ import annotations

import pytest
from sealed_story import Raw
from stores import Store

from holdfast.format.state.write_plan import MERGED_ELEMENTS

pytestmark = pytest.mark.every_store
COUNT = 6 * MERGED_ELEMENTS + 5


def segments_after_appends(store: Store) -> int:
    client = store.client()
    items = [{"n": number, "text": "a text of the list " * 4} for number in range(20)]
    for number in range(20, COUNT):
        items.append({"n": number, "text": "a text of the list " * 4})
        last = client.save(agent_id="a", session_id="s", execution_state={"list": items})
        if number % 50 == 0:
            client = store.client()  # another process goes on
    assert store.client().restore(last).execution_state == {"list": items}
    assert store.client().verify().ok
    return len(Raw.of(store).segments())


def test_appends_to_a_sealed_store_leave_few_segments(store: Store):
    store.is_sealed = True
    assert segments_after_appends(store) <= COUNT % MERGED_ELEMENTS + 2 * (COUNT // MERGED_ELEMENTS) + 1


def test_appends_to_a_plain_store_are_stored_as_they_come(store: Store):
    store.is_sealed = False
    assert segments_after_appends(store) > COUNT // 2


def test_two_clients_that_append_in_turn_lose_nothing(store: Store):
    store.is_sealed = True
    clients = [store.client(), store.client()]
    items = [{"n": number, "text": "a text of the list " * 4} for number in range(20)]
    saved = []
    for number in range(20, COUNT):
        items = [*items, {"n": number, "text": "a text of the list " * 4}]
        saved.append(clients[number % 2].save(agent_id="a", session_id="s", execution_state={"list": items}))
        if number in (MERGED_ELEMENTS, 2 * MERGED_ELEMENTS + 1):
            fork = clients[0].fork(saved[-9], session_id=f"fork {number}")
            assert fork is not None
            branch = [*items[:-9], "of the fork"]
            clients[1].save(agent_id="a", session_id=f"fork {number}", execution_state={"list": branch})
            assert clients[0].latest(session_id=f"fork {number}").execution_state == {"list": branch}
    for at, checkpoint_id in enumerate(saved):
        assert clients[at % 2].restore(checkpoint_id).execution_state == {"list": items[: 21 + at]}
    for checkpoint_id in saved[:-1:2]:
        clients[0].expire(checkpoint_id)
    clients[1].gc()
    assert clients[0].restore(saved[-1]).execution_state == {"list": items}
    assert clients[0].verify().ok
