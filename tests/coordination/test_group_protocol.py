"""The consume protocol, all interleavings: a message is consumed at most once, and never settled without that.

Each consumer reads the group's row, takes over what is held, claims, consumes and acknowledges, each as an atomic
operation of the store. Between any two, any other consumer may go on, and any may crash. Any holder may be taken for
dead at any moment. The transitions of the row are those of the library.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from holdfast.model import group_state
from holdfast.model.group_state import GroupEntry, GroupState, Holder
from holdfast.model.lease import Process

ID = b"message"
NOBODY = Process("", 0, 0)
DONE, REVOKED = "done", "revoked"
LATER = 2**62  # every pause is over


class World(NamedTuple):
    """The group's row, the decisions by token, how often each token was consumed, and what each consumer does."""

    row: GroupState
    decisions: tuple[tuple[int, str], ...]
    consumed: int
    consumers: tuple[tuple[Any, ...], ...]

    def decision(self, token: int) -> str | None:
        return dict(self.decisions).get(token)

    def with_decision(self, token: int, what: str) -> World:
        return self._replace(decisions=(*self.decisions, (token, what)))

    def step(self, number: int, *phase: Any) -> World:
        return self._replace(consumers=(*self.consumers[:number], phase, *self.consumers[number + 1 :]))


class Rules(NamedTuple):
    revokes: bool = True  # a takeover writes a decision first
    decides: bool = True  # a consumption is refused if there is a decision
    checks_tokens: bool = True  # an acknowledgement is that of the token


def begin(consumers: int) -> World:
    return World(GroupState(1, entries=(GroupEntry(1, ID, None, 0),)), (), 0, (("idle",),) * consumers)


def held(row: GroupState) -> Holder | None:
    return next((one.holder for one in row.entries), None)


def steps(world: World, number: int, rules: Rules) -> Iterator[World]:
    """The states after one atomic operation of a consumer."""
    match world.consumers[number]:
        case ("idle",):
            if world.row.entries:
                yield world.step(number, "read", world.row)
        case ("read", row):
            holder = held(row)
            if holder is not None and rules.revokes:  # taken for dead, which may be wrong
                if world.decision(holder.token) is None:
                    yield world.with_decision(holder.token, REVOKED).step(number, "decided", row, False)
                else:
                    is_done = world.decision(holder.token) == DONE
                    yield world.step(number, "decided", row, is_done)
            elif holder is not None:
                yield world.step(number, "decided", row, False)
            else:
                yield from claim(world, number, row, row)
        case ("decided", row, is_done):
            holder = held(row)
            assert holder is not None
            if is_done:
                yield compare_and_set(world, number, row, row.settle([(ID, holder.token)]), "idle")
            else:
                after, _ = row.fail(ID, holder.token, "died", 0)
                yield from claim(world, number, row, after)
        case ("holding", token):
            if not rules.decides:
                yield world._replace(consumed=world.consumed + 1).step(number, "took", token)
            elif world.decision(token) is None:
                yield world._replace(consumed=world.consumed + 1).with_decision(token, DONE).step(number, "took", token)
            else:
                yield world.step(number, "idle")  # the commit is refused
        case ("took", token):
            yield world.step(number, "acking", token, world.row)
        case ("acking", token, row):
            after = row.settle([(ID, token)]) if rules.checks_tokens else row._replace(entries=())
            yield compare_and_set(world, number, row, after, "idle")
    if world.consumers[number] != ("idle",):
        yield world.step(number, "idle")  # it crashes


def claim(world: World, number: int, row: GroupState, after: GroupState) -> Iterator[World]:
    wanted = {one.id for one in after.claimable(LATER)}
    if wanted:
        after = after.claim(wanted, lambda token: Holder(token, b"", f"c{number}", 1, 0, NOBODY))
        yield compare_and_set(world, number, row, after, "holding", after.token)
    elif after != row:
        yield compare_and_set(world, number, row, after, "idle")
    else:
        yield world.step(number, "idle")


def compare_and_set(world: World, number: int, row: GroupState, after: GroupState, *phase: Any) -> World:
    """The row is replaced if it is as it was read; no row occurs twice, since tokens and attempts rise."""
    if world.row != row:
        return world.step(number, "idle")
    return world._replace(row=after).step(number, *phase)


def find_violation(consumers: int, rules: Rules) -> tuple[str | None, int]:
    """Visit every reachable state; return the first violation, and how many states were visited."""
    first = begin(consumers)
    seen, waiting = {first}, [first]
    ends = 0
    while waiting:
        world = waiting.pop()
        if world.consumed > 1:
            return "consumed twice", len(seen)
        is_settled = not world.row.entries and not world.row.dead
        if is_settled and not world.consumed:
            return "settled and never consumed", len(seen)
        if not world.row.entries:
            ends += 1
        for number in range(consumers):
            for after in steps(world, number, rules):
                if after not in seen:
                    seen.add(after)
                    waiting.append(after)
    assert ends, "no run comes to an end"
    return None, len(seen)


@pytest.fixture(autouse=True)
def few_attempts(monkeypatch):
    """Attempts end every run, so that there are finitely many states."""
    monkeypatch.setattr(group_state, "MAX_ATTEMPTS", 3)


@pytest.mark.parametrize(("consumers", "at_least"), [(1, 20), (2, 500), (3, 10_000)])
def test_no_interleaving_consumes_twice_or_settles_unconsumed(consumers, at_least):
    violation, states = find_violation(consumers, Rules())
    assert violation is None
    assert states > at_least


@pytest.mark.parametrize(
    ("rules", "found"),
    [
        (Rules(revokes=False), "consumed twice"),
        (Rules(decides=False), "consumed twice"),
        (Rules(revokes=False, decides=False), "consumed twice"),
        (Rules(checks_tokens=False, decides=False), "consumed twice"),
    ],
)
def test_without_a_rule_a_violation_is_found(rules, found):
    violation, states = find_violation(2, rules)
    assert violation == found, states
