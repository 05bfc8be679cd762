"""Errors arrive from other processes as they were raised."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime

import pytest

from holdfast import errors
from holdfast.errors import HoldfastError

SPECIAL = {
    errors.UnsupportedValueError: ("execution_state.user", "can't be kept", "Leave it out"),
    errors.LeaseHeldError: ("it is leased", "worker 1", datetime(2026, 1, 1, tzinfo=UTC)),
    errors.RunCancelledError: ("it was cancelled", "s", "ann", "enough"),
    errors.ApprovalError: ("it was used", "an approval"),
    errors.ApprovalPendingError: ("it waits", "an approval"),
    errors.ApprovalRejectedError: ("it was rejected", "an approval", "ann", "too much"),
    errors.WorkspaceChangedError: ("files have changed", (b"a", b"b")),
    errors.TopicFullError: ("it is full", "drafts", "reviewers", 10_000),
    errors.StoreError: ("the disk is full", "a checkpoint", "a claim"),
}
KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, HoldfastError)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("carry", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy], ids=["pickle", "copy"])
def test_each_kind_arrives_whole(kind, carry):
    error = kind(*SPECIAL.get(kind, ("a message",)))
    error.add_note("a note")
    arrived = carry(error)
    assert type(arrived) is kind
    assert (str(arrived), arrived.__dict__) == (str(error), error.__dict__)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_kind_is_to_be_had_where_the_client_is(kind):
    import holdfast

    assert getattr(holdfast, kind.__name__) is kind
    assert kind.__name__ in holdfast.__all__
