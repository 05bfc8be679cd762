"""The checkpoint and what makes one: a plain immutable value."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from datetime import UTC, datetime, timedelta

import pytest
from stores import SOME_ID

from holdfast import Checkpoint, CheckpointBuilder, Framework, StateNotLoadedError, SyncClient, UsageError


def checkpoint(**fields) -> Checkpoint:
    return Checkpoint(**({"checkpoint_id": SOME_ID, "agent_id": "a", "session_id": "s"} | fields))


def test_it_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        checkpoint().agent_id = "b"


def test_it_is_equal_to_one_with_the_same_fields():
    when = datetime(2026, 1, 1, tzinfo=UTC)
    one, other = (checkpoint(created_at=when, execution_state={"x": 1}, metadata={"m": 1}) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    assert one != dataclasses.replace(one, step_index=2)
    assert one != "something else"


def test_an_entry_without_state_is_no_less_a_value():
    client = SyncClient.memory()
    saved = client.save("a", session_id="s", execution_state={"x": 1})
    entry = client.get(saved)
    assert entry == client.get(saved)
    assert entry != client.restore(saved)
    assert copy.copy(entry) == copy.deepcopy(entry) == pickle.loads(pickle.dumps(entry)) == entry
    assert not entry.has_state
    assert "execution_state" not in entry.as_dict()
    assert not hasattr(entry, "execution_state")
    with pytest.raises(StateNotLoadedError):
        _ = entry.agent_context
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = entry.nonsense


def test_its_time_to_live():
    when = datetime(2026, 1, 1, tzinfo=UTC)
    assert checkpoint().expires_at is None
    assert not checkpoint().is_expired()
    lives = checkpoint(created_at=when, ttl_seconds=60)
    assert lives.expires_at == when + timedelta(seconds=60)
    assert not lives.is_expired(when + timedelta(seconds=59))
    assert lives.is_expired(when + timedelta(seconds=60))
    assert lives.is_expired()


def test_it_shows_itself():
    shown = checkpoint(step_index=3, step_name="plan", handoff_target="b", created_at=datetime(2026, 1, 2, tzinfo=UTC))
    assert repr(shown) == "<Checkpoint 1d9be2f1 'a' 's' step 3 'plan' → 'b' 2026-01-02 00:00:00>"
    html = checkpoint(execution_state="<script>", metadata={"k": "<b>"})._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert SOME_ID in html


class TestBuilder:
    def test_makes_up_what_was_not_said(self):
        one, other = CheckpointBuilder("a").build(), CheckpointBuilder("a").build()
        assert one.checkpoint_id != other.checkpoint_id
        assert one.session_id != other.session_id
        assert one.framework is Framework.CUSTOM
        assert one.step_index is None

    def test_may_be_used_again(self):
        builder = CheckpointBuilder("a").session("s").tag(x=1)
        first = builder.build()
        second = builder.tag(y=2).build()
        assert (first.metadata, second.metadata) == ({"x": 1}, {"x": 1, "y": 2})
        assert first.checkpoint_id != second.checkpoint_id

    @pytest.mark.parametrize("ttl", [0, -1])
    def test_refuses_a_ttl_that_is_not_positive(self, ttl):
        with pytest.raises(UsageError, match="positive"):
            CheckpointBuilder("a").ttl(ttl)

    def test_refuses_an_unknown_framework(self):
        with pytest.raises(UsageError, match="langgraph"):
            CheckpointBuilder("a", "nonsense")
