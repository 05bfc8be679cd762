"""The way from a stored version to the newest one: whatever steps are registered, it is the shortest there is."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from holdfast import Migrations, MissingMigrationError, NewerStateError
from holdfast.model.state_migration import find_gap, find_path

versions = st.integers(1, 9)
edges = st.lists(st.tuples(versions, versions).filter(lambda edge: edge[0] < edge[1]), max_size=14, unique=True)


def all_paths(steps, start, goal):
    if start == goal:
        return [()]
    return [((a, b), *rest) for a, b in steps if a == start for rest in all_paths(steps, b, goal)]


@given(edges, versions, versions)
def test_is_the_shortest_and_goes_furthest_first(steps, start, goal):
    ways = all_paths(steps, start, goal)
    found = find_path(steps, start, goal)
    if not ways:
        assert found is None
    else:
        fewest = min(map(len, ways))
        assert found == max(way for way in ways if len(way) == fewest)


@given(edges, versions, versions, st.randoms())
def test_does_not_depend_on_the_order_of_registration(steps, start, goal, random):
    shuffled = [*steps]
    random.shuffle(shuffled)
    assert find_path(shuffled, start, goal) == find_path(steps, start, goal)


@given(edges.filter(bool), versions)
def test_what_is_named_as_missing_is_all_that_is_missing(steps, start):
    newest = max(after for _, after in steps)
    if start < newest and find_path(steps, start, newest) is None:
        missing = find_gap(steps, start, newest)
        assert missing[0] < missing[1]
        assert find_path([*steps, missing], start, newest) is not None


@given(edges, edges, versions)
def test_a_state_ends_up_at_the_newest_version_by_registered_steps_only(own, of_all, stored):
    migrations = Migrations()
    for agent, steps in (("a", own), ("*", of_all)):
        for before, after in steps:
            migrations.register(agent, before, after)(_noting(agent, before, after))
    known = {*own, *of_all}
    newest = migrations.newest("a")
    assert newest == (max(after for _, after in known) if known else None)
    try:
        steps = migrations.steps("a", stored)
    except NewerStateError:
        assert newest is not None
        assert stored > newest
        return
    except MissingMigrationError:
        assert find_path(known, stored, newest) is None
        return
    state: tuple = ([], None)
    for step in steps:
        state = step.apply(*state)
    passed = state[0]
    if newest is None or stored == newest:
        assert passed == []
        return
    assert (passed[0][1], passed[-1][2]) == (stored, newest)
    assert all(one[2] == other[1] for one, other in pairwise(passed))
    # Its own step goes before one of all agents.
    assert all(agent == "a" or (before, after) not in own for agent, before, after in passed)


def _noting(*step):
    def note(state):
        return [*state, step]

    return note
