"""Checkpoints that adapters build and read by hand."""

from __future__ import annotations

import pytest

from holdfast import SyncClient, UsageError
from holdfast.adapters.base.manual import build_checkpoint, read_state
from holdfast.adapters.base.session import TURN
from holdfast.errors import StateNotLoadedError
from holdfast.model.framework import Framework

STATE = {"messages": [{"role": "user", "content": "hello"}], "agent": "clerk"}


def extract(**changes):
    options = {"agent_id": "clerk", "session_id": "s", "context": {"invoice": 7}, "step_name": "read"} | changes
    return build_checkpoint(Framework.CREWAI, STATE, **options)


def test_what_was_built_is_saved_under_the_head_and_read_again():
    with SyncClient.memory() as client:
        before = client.save("clerk", session_id="s", execution_state={}, step_index=4)
        saved = client.restore(client.save_checkpoint(extract()))
        assert (saved.parent_id, saved.step_index, saved.step_name) == (before, 5, "read")
        assert (saved.framework, saved.agent_context) == (Framework.CREWAI, {"invoice": 7})
        assert read_state(saved, Framework.CREWAI, "messages") == STATE


def test_a_checkpoint_of_another_framework_is_refused():
    with pytest.raises(UsageError, match="was saved by crewai, not by autogen"):
        read_state(extract(), Framework.AUTOGEN)


def test_a_state_that_no_adapter_has_saved_is_refused():
    with pytest.raises(UsageError, match=r"neither by extract.* nor by resumable.*lacks 'messages', 'team'"):
        read_state(extract(), Framework.CREWAI, "messages", "team")


def test_a_turn_that_was_cut_off_is_refused():
    cut_off = build_checkpoint(Framework.CREWAI, STATE, agent_id="clerk", session_id="s")
    cut_off.execution_state[TURN] = {"id": "turn=7"}
    with pytest.raises(UsageError, match="in the middle of a turn: resumable"):
        read_state(cut_off, Framework.CREWAI, "messages")


def test_an_entry_of_a_timeline_names_restore():
    with SyncClient.memory() as client:
        client.save_checkpoint(extract())
        [entry] = client.timeline("s")
        with pytest.raises(StateNotLoadedError, match="restore"):
            read_state(entry, Framework.CREWAI)


@pytest.mark.parametrize(("name", "value"), [("agent_id", ""), ("session_id", None), ("session_id", 7)])
def test_a_missing_name_is_refused(name, value):
    with pytest.raises(UsageError, match=f"{name} is"):
        extract(**{name: value})


def test_something_else_than_a_checkpoint_is_refused():
    with pytest.raises(UsageError, match="takes a Checkpoint, not a str"):
        read_state("01J", Framework.CREWAI)
