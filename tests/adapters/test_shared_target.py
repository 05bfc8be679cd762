"""Objects of frameworks that several sessions share."""

from __future__ import annotations

import gc

import pytest

from holdfast.adapters.base.shared_target import FirstStates, hold
from holdfast.errors import UsageError


class Agent:
    """An object that can be referred to weakly."""


def test_objects_are_held_by_one_turn_at_a_time():
    one, other = Agent(), Agent()
    with hold([one], "agent"):
        with pytest.raises(UsageError, match="the agent is in the middle of another turn"), hold([other, one], "agent"):
            pass
        with hold([other], "agent"):  # what was refused holds nothing
            pass
    with pytest.raises(RuntimeError), hold([one], "agent"):
        raise RuntimeError
    with hold([one, other], "agent"):
        pass


def test_the_first_state_stays_and_goes_with_its_object():
    states: FirstStates[list[int]] = FirstStates()
    agent, first = Agent(), [1]
    assert states.find(agent) is None
    assert states.take(agent, lambda: first) is first
    assert states.take(agent, lambda: [2]) is first
    assert states.find(agent) is first
    del agent
    gc.collect()
    assert not states._states
