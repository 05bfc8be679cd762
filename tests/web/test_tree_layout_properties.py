"""The layout of a tree is that of the command line, also after checkpoints were added to it."""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from holdfast import SyncClient
from holdfast.model import ids
from holdfast.web import tree_layout
from holdfast.web.tree_layout import LEAF, TreeLayout

STEPS = st.lists(st.tuples(st.sampled_from(["save", "fork", "back", "expire"]), st.integers(0, 30)), max_size=25)


def _grow(client: SyncClient, made: list[str], steps: list[tuple[str, int]]) -> None:
    sessions = [one.session_id for one in client.sessions()] or ["main"]
    for kind, number in steps:
        session, some = sessions[number % len(sessions)], made[number % len(made)]
        try:
            if kind == "save":
                made.append(client.save("a", execution_state={"n": len(made)}, session_id=session))
            elif kind == "fork":
                report = client.fork(some, f"fork-{len(made)}")
                made.append(report.checkpoint_id)
                sessions.append(report.session_id)
            elif kind == "back":
                client.rollback(session, some)
            else:
                client.expire(some)
        except (LookupError, ValueError):
            continue


def _check(layout: TreeLayout, client: SyncClient) -> None:
    tree = client.tree("main")
    rows = layout.page(0, 1000)
    assert {ids.to_text(row.id) for row in rows} == {one.checkpoint_id for one in tree.entries}
    assert [row.row for row in rows] == list(range(len(rows)))
    place = {ids.to_text(row.id): row for row in rows}
    for one, parent in tree.parents.items():
        row = place[one]
        assert row.parent_row == (None if parent is None else place[parent].row)
        assert parent is None or row.row < place[parent].row  # children first
    followed = {parent for parent in tree.parents.values() if parent is not None}
    for row in rows:
        assert bool(row.flags & LEAF) == (ids.to_text(row.id) not in followed)
        assert row.lane not in row.through
        assert not set(row.joins) & {row.lane, *row.through}
        assert len(set(row.through)) == len(row.through)
    _check_lines(rows)


def _check_lines(rows) -> None:
    """Each line leads from a dot down its lane to its parent's dot, and no two share a lane."""
    expected: list[set[int]] = [set() for _ in rows]
    for row in rows:
        if row.parent_row is None:
            continue
        parent = rows[row.parent_row]
        lane = row.lane
        assert lane == parent.lane or lane in parent.joins
        for between in rows[row.row + 1 : parent.row]:
            assert lane not in expected[between.row]
            expected[between.row].add(lane)
    assert [set(row.through) for row in rows] == expected


@given(STEPS, STEPS)
def test_every_line_of_the_drawing_leads_to_its_parent(before, after):
    with SyncClient.memory() as client:
        made = [client.save("a", execution_state={}, session_id="main")]
        _grow(client, made, before)
        layout = TreeLayout(client._ctx, ids.from_text(made[0]))
        layout.update()
        _check(layout, client)
        _grow(client, made, after)
        layout._began_at = 0.0  # a new layout may begin at once
        layout.update()
        _check(layout, client)


def test_the_lanes_of_a_large_tree_are_those_of_the_command_line():
    with SyncClient.memory() as client:
        made = [client.save("a", execution_state={}, session_id="main")]
        _grow(client, made, [("fork" if n % 17 == 0 else "save", n * 7919 % 31) for n in range(400)])
        tree = client.tree("main")
        layout = TreeLayout(client._ctx, ids.from_text(tree.tree_id))
        rows = layout.page(0, 1000)
        if [ids.to_text(row.id) for row in rows] == [one.checkpoint_id for one in tree.entries]:
            assert [(row.lane, row.through, row.joins) for row in rows] == [
                (one.lane, one.through, one.joins) for one in tree.lanes()
            ]
        _check(layout, client)


def test_the_first_page_does_not_wait_for_the_whole_layout(monkeypatch):
    may_end, pauses = threading.Event(), []

    def pause(_: float) -> None:
        """Between two chunks: all threads but this one wait after some of them."""
        if threading.current_thread() is not threading.main_thread():
            pauses.append(1)
            assert len(pauses) < 3 or may_end.wait(60)

    monkeypatch.setattr(tree_layout, "sleep", pause)
    with SyncClient.memory() as client:
        made = [client.save("a", execution_state={"n": n}, session_id="main") for n in range(2400)]
        layout = TreeLayout(client._ctx, ids.from_text(made[0]))
        rest = threading.Thread(target=layout.line, args=(ids.from_text(made[-1]),))
        rest.start()
        for _ in range(3):
            assert len(layout.page(0, 50)) == 50
            assert not layout._is_done
        may_end.set()
        rest.join()
        assert layout.total == len(made)
