"""Pure functions over trees: ancestors, leaves, common ancestors, lanes."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model import tree as trees


@st.composite
def forests(draw: st.DrawFn) -> dict[int, int | None]:
    """Parents by node. Each node's parent is older, none, or one that is not here any more."""
    count = draw(st.integers(0, 40))
    return {
        node: draw(st.none() | st.just(-1) | (st.integers(0, node - 1) if node else st.none())) for node in range(count)
    }


@given(forests())
def test_ancestors_lead_to_a_root_one_parent_at_a_time(parents):
    for node in parents:
        line = list(trees.ancestors(parents, node))
        assert line[0] == node
        assert all(parents[child] == parent for child, parent in itertools.pairwise(line))
        assert parents[line[-1]] not in parents


@given(forests())
def test_leaves_are_those_that_nobody_followed(parents):
    leaves = trees.leaves(parents)
    assert set(leaves) == {node for node in parents if node not in parents.values()}
    assert leaves == [node for node in parents if node in leaves]
    assert bool(leaves) == bool(parents)


@given(forests(), st.integers(0, 39), st.integers(0, 39))
def test_the_common_ancestor_is_the_nearest_one_of_both(parents, a, b):
    if a not in parents or b not in parents:
        return
    found = trees.common_ancestor(parents, a, b)
    of_a, of_b = list(trees.ancestors(parents, a)), list(trees.ancestors(parents, b))
    assert found == trees.common_ancestor(parents, b, a)
    shared = [node for node in of_a if node in of_b]
    assert found == (shared[0] if shared else None)


@given(forests())
def test_lanes_draw_every_edge_and_never_collide(parents):
    """Follows the drawing from top to bottom: the line that leaves a node downward arrives at its parent."""
    order = sorted(parents, reverse=True)
    rows = trees.lanes(parents, order)
    assert [row.node for row in rows] == order
    leading: dict[int, list[int]] = {}  # per lane, the children whose line runs in it
    drawn = set()
    for row in rows:
        assert len({row.lane, *row.through, *row.joins}) == 1 + len(row.through) + len(row.joins)
        arriving = [child for lane in (row.lane, *row.joins) for child in leading.pop(lane, [])]
        assert row.is_leaf == (not arriving)
        drawn |= {(child, row.node) for child in arriving}
        assert set(leading) == set(row.through), "a line that is not drawn passing by has vanished"
        if parents[row.node] in parents:
            assert row.lane not in leading
            leading[row.lane] = [row.node]
    assert leading == {}
    assert drawn == {(child, parent) for child, parent in parents.items() if parent in parents}


@given(forests())
def test_a_line_without_branches_takes_one_lane(parents):
    order = sorted(parents, reverse=True)
    widest = max((max((row.lane, *row.through, *row.joins)) for row in trees.lanes(parents, order)), default=0)
    assert widest <= max(len(trees.leaves(parents)) - 1, 0)


def test_a_cycle_is_an_error_and_not_a_hang():
    with pytest.raises(ValueError, match="its own ancestor"):
        list(trees.ancestors({1: 2, 2: 1}, 1))
