"""Whatever was done: undoing all of it brings back the same heads, tags, pins and checkpoints, and
redoing all of it brings them back as they were after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast import CheckpointExpiredError, CheckpointNotFoundError, ConflictError, SyncClient

SESSIONS = ("a", "b")


class World:
    """A few sessions, two of which are of one tree; operations choose among what is there by number."""

    def __init__(self) -> None:
        self.client = SyncClient.memory()
        self.ids = [
            self.client.save("agent", session_id=session, execution_state={"at": [session, step]})
            for session in SESSIONS
            for step in range(3)
        ]
        self.ids.append(self.client.save("agent", session_id="way", parent_id=self.ids[1]))
        self.ids.append(self.client.save("agent", session_id="way"))

    def id_(self, number: int) -> str:
        return self.ids[number % len(self.ids)]

    def seen(self) -> dict[str, Any]:
        return {
            "heads": {one.session_id: one.head.checkpoint_id for one in self.client.sessions()},
            "tags": self.client.tags(),
            "pins": self.client.pins(),
            "live": {id_: state for id_ in self.ids if (state := self.state(id_)) is not None},
        }

    def state(self, id_: str) -> Any:
        try:
            return self.client.restore(id_).execution_state
        except CheckpointExpiredError:
            return None

    def undo_all(self) -> int:
        return _while_there_is_one(self.client.undo)

    def redo_all(self) -> int:
        return _while_there_is_one(self.client.redo)


def _while_there_is_one(step: Callable[[], object]) -> int:
    for count in range(1000):
        try:
            step()
        except CheckpointNotFoundError:
            return count
    raise AssertionError("it does not end")


def fork(world: World, number: int, other: int) -> None:
    world.ids.append(world.client.fork(world.id_(number), session_id=f"fork {other}").checkpoint_id)


def adopt(world: World, number: int, other: int) -> None:
    names = [one.session_id for one in world.client.sessions()]
    world.ids.append(world.client.adopt(names[number % len(names)], names[other % len(names)]).checkpoint_id)


def undo_or_redo(world: World, number: int, _other: int) -> None:
    (world.client.undo if number % 3 else world.client.redo)()


ACTS: dict[str, Callable[[World, int, int], object]] = {
    "tag": lambda world, number, other: world.client.tag(f"tag {other % 3}", world.id_(number), force=True),
    "untag": lambda world, _, other: world.client.untag(f"tag {other % 3}"),
    "pin": lambda world, number, other: world.client.pin(world.id_(number), note=f"note {other % 3}"),
    "unpin": lambda world, number, _: world.client.unpin(world.id_(number)),
    "expire": lambda world, number, _: world.client.expire(world.id_(number)),
    "unexpire": lambda world, number, _: world.client.unexpire(world.id_(number)),
    "rollback": lambda world, number, other: world.client.rollback(SESSIONS[other % 2], to=world.id_(number)),
    "fork": fork,
    "forks": lambda world, number, other: world.client.fork(
        world.id_(number), set=[{}, {"n": 1}], session_id=f"n {other}"
    ),
    "adopt": adopt,
}
NUMBERS = st.integers(0, 12)


def done(world: World, act: Callable[[World, int, int], object], number: int, other: int) -> None:
    try:
        act(world, number, other)
    except (ConflictError, CheckpointExpiredError, CheckpointNotFoundError, ValueError):
        return  # it could not be: then nothing was changed


@example([("rollback", 0, 0), ("expire", 0, 0), ("rollback", 1, 0)])  # from a session that stood at nothing
@given(st.lists(st.tuples(st.sampled_from(sorted(ACTS)), NUMBERS, NUMBERS), min_size=1, max_size=12))
def test_undoing_all_brings_everything_back_and_redoing_all_does_it_again(acts: list[tuple[str, int, int]]):
    world = World()
    before = world.seen()
    for name, number, other in acts:
        done(world, ACTS[name], number, other)
    after = world.seen()
    operations = len(world.client.operations(limit=None))
    count = world.undo_all()
    back = world.seen()
    assert {**back, "live": {id_: one for id_, one in back["live"].items() if id_ in before["live"]}} == before
    assert world.redo_all() == count
    assert world.seen() == after
    assert len(world.client.operations(limit=None)) == operations + 2 * count
    assert world.client.verify().ok


@given(st.lists(st.tuples(st.sampled_from([*sorted(ACTS), "step"]), NUMBERS, NUMBERS), min_size=1, max_size=15))
def test_with_undos_and_redos_in_between(acts: list[tuple[str, int, int]]):
    """Each step of undo brings back what was there before the operation that it names, as long as
    nothing came in between."""
    world = World()
    for name, number, other in acts:
        done(world, ACTS.get(name, undo_or_redo), number, other)
    before = world.seen()
    try:
        report = world.client.undo()
    except (ConflictError, CheckpointExpiredError, CheckpointNotFoundError):
        assert world.seen() == before  # refused, and nothing was changed
    else:
        assert world.client.redo().operation.operation_id == report.operation.operation_id
        assert world.seen() == before
    assert world.client.verify().ok


def test_the_world_that_is_looked_at_has_something_to_lose():
    world = World()
    assert len(world.seen()["heads"]) == 3
    assert len(world.seen()["live"]) == len(world.ids)
    with pytest.raises(CheckpointNotFoundError):
        world.client.undo()
