"""The plan of a restore: pure, so its properties are tried on many trees."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from restore_trees import changes, entries, entry, trees

from holdfast.model.file_restore_plan import RestorePlan, UnsafePathError, list_parents, make_plan
from holdfast.model.safe_path import flags_of, fold, is_outside, is_reserved
from holdfast.model.snapshot import FileChange, FileEntry

Entries = dict[bytes, FileEntry]


def carried_out(plan: RestorePlan, before: Entries, occupied: tuple[bytes, ...] = ()) -> Entries:
    """What a file system makes of the actions. Fails where a real one would."""
    now = dict(before)
    for action in plan.actions:
        path = action.path
        assert now.get(path) == action.before, f"{action} finds {now.get(path)}"
        for above in list_parents(path):
            assert above not in now or now[above].kind == "dir"
        above = path.rpartition(b"/")[0]
        assert not above or above in now, f"{action}: there is no directory"
        if action.doing == "delete":
            assert not any(other.startswith(path + b"/") for other in (*now, *occupied)), f"{action}: not empty"
            del now[path]
        else:
            assert action.after is not None
            if action.doing == "replace":
                assert "dir" not in (now[path].kind, action.after.kind)
            if action.doing == "create":
                assert path not in now
            now[path] = action.after
    return now


@given(trees(), trees())
def test_the_actions_lead_from_any_tree_to_any_other(before_tree, after_tree):
    before, after = entries(before_tree), entries(after_tree)
    plan = make_plan(changes(before, after))
    assert carried_out(plan, before) == after
    assert plan.conflicts == plan.left == ()


@given(trees(), trees())
def test_nothing_that_is_the_same_is_touched(before_tree, after_tree):
    before, after = entries(before_tree), entries(after_tree)
    plan = make_plan(changes(before, after))
    same = {path for path in before if before[path] == after.get(path)}
    assert not plan.touched & same


@given(trees(), trees(), trees(), st.data())
def test_what_the_user_changed_is_kept_and_everything_that_stands_in_no_ones_way_is_restored(last, now, target, data):
    last, now, target = entries(last), entries(now), entries(target)
    changed = {path for path in {*last, *now} if last.get(path) != now.get(path)}
    plan = make_plan(changes(now, target), changed_since=changed, keep_user=True)
    after = carried_out(plan, now)
    left = {one.path for one in plan.left}
    for path in changed:
        if now.get(path) != target.get(path) and path not in plan.touched:
            assert path in left
    for path in changed & now.keys():  # nothing that the user made or changed is lost
        assert after[path] == now[path]
    for path in {*now, *target} - left:
        assert after.get(path) == target.get(path)
    assert plan.conflicts == ()


def test_a_directory_is_not_made_again_below_a_link_that_the_user_put_in_its_place():
    last = entries({b"d": ("dir", 0o755, b""), b"d/e": ("dir", 0o755, b"")})
    now = entries({b"d": ("symlink", 0o777, b"elsewhere")})
    target = entries({b"d": ("dir", 0o755, b""), b"d/e": ("dir", 0o755, b""), b"d/e/f": ("file", 0o644, b"")})
    changed = {path for path in {*last, *now} if last.get(path) != now.get(path)}
    plan = make_plan(changes(now, target), changed_since=changed, keep_user=True)
    assert plan.actions == ()
    assert {one.path for one in plan.left} == {b"d", b"d/e", b"d/e/f"}


@given(trees(), trees(), trees())
def test_without_keeping_what_changed_since_is_a_conflict(last, now, target):
    last, now, target = entries(last), entries(now), entries(target)
    changed = {path for path in {*last, *now} if last.get(path) != now.get(path)}
    plan = make_plan(changes(now, target), changed_since=changed)
    assert set(plan.conflicts) == {path for path in changed & now.keys() if now[path] != target.get(path)}
    assert carried_out(plan, now) == target  # what force does


@given(trees(), trees(), st.sampled_from([b"a", b"dir", b"b"]))
def test_what_is_excluded_is_neither_written_nor_deleted(before_tree, after_tree, name):
    def protected(path: bytes) -> bool:
        return name in path.split(b"/")

    before, after = entries(before_tree), entries(after_tree)
    plan = make_plan(changes(before, after), protected=protected)
    done = carried_out(plan, before)
    for path in {*before, *after}:
        if protected(path):
            assert done.get(path) == before.get(path)
            assert before.get(path) == after.get(path) or path in {one.path for one in plan.left}
    left = {one.path for one in plan.left}
    for path in {*before, *after} - left:
        assert done.get(path) == after.get(path)


@given(trees(), trees())
def test_a_directory_that_holds_what_is_in_no_snapshot_stays(before_tree, after_tree):
    before, after = entries(before_tree), entries(after_tree)
    occupied = tuple(path + b"/ignored.log" for path, found in before.items() if found.kind == "dir")
    plan = make_plan(changes(before, after), occupied=occupied)
    done = carried_out(plan, before, occupied)
    assert all(done[path].kind == "dir" for path, found in before.items() if found.kind == "dir")


@given(trees(), trees(), st.sampled_from([b"a", b"dir", b"a/b", b"dir/a"]))
def test_narrowed_to_a_path_nothing_else_changes_but_directories_that_it_needs(before_tree, after_tree, scope):
    before, after = entries(before_tree), entries(after_tree)
    plan = make_plan(changes(before, after), paths=[scope])
    done = carried_out(plan, before)
    for path in {*before, *after}:
        if path == scope or path.startswith(scope + b"/"):
            assert done.get(path) == after.get(path)
        elif scope.startswith(path + b"/"):
            assert done.get(path) in (before.get(path), after.get(path))
        elif not any(done.get(above, before.get(above)) != before.get(above) for above in list_parents(path)):
            assert done.get(path) == before.get(path)


@given(trees(), trees())
def test_a_plan_that_was_carried_out_has_nothing_left_to_do(before_tree, after_tree):
    before, after = entries(before_tree), entries(after_tree)
    done = carried_out(make_plan(changes(before, after)), before)
    assert make_plan(changes(done, after)).empty


@pytest.mark.parametrize("path", [b"../x", b"/etc/passwd", b"a/../../x", b"a//b", b"", b"a/./b", b"a\0b", b"a/"])
def test_a_name_that_leads_out_is_refused(path):
    with pytest.raises(UnsafePathError):
        make_plan([FileChange(path, None, FileEntry(path, "file", 0o644, 0, b""))])


@pytest.mark.parametrize("kind", ["file", "symlink"])
def test_a_target_that_has_something_below_a_file_or_a_link_is_refused(kind):
    above, below = entry(b"a", (kind, 0o644, b"/etc")), entry(b"a/passwd", ("file", 0o644, b""))
    with pytest.raises(UnsafePathError, match="no directory"):
        make_plan([FileChange(b"a", None, above), FileChange(b"a/passwd", None, below)])


@pytest.mark.parametrize(
    ("path", "target", "leads_out"),
    [
        (b"l", b"a", False),
        (b"l", b"..", True),
        (b"d/l", b"../a", False),
        (b"d/l", b"../../a", True),
        (b"l", b"/etc/passwd", True),
        (b"d/e/l", b"../../x/../../y", True),
        (b"l", b"a/../b", False),
    ],
)
def test_links_that_lead_out_are_told_from_others(path, target, leads_out):
    assert is_outside(path, target) is leads_out


def test_names_that_some_systems_can_not_tell_apart_or_not_have_are_flagged():
    names = [
        b"Makefile",
        b"makefile",
        "caf\u00e9".encode(),
        "cafe\u0301".encode(),
        b"aux.c",
        b"ok",
        b"what?",
        b"d.",
        b"x" * 300,
    ]
    flags = flags_of([FileEntry(name, "file", 0o644, 0, b"") for name in names])
    assert {(flag.kind, flag.path) for flag in flags} == {
        ("case", b"makefile"),
        ("unicode", "cafe\u0301".encode()),
        ("reserved", b"aux.c"),
        ("reserved", b"what?"),
        ("reserved", b"d."),
        ("long", b"x" * 300),
    }


def test_a_new_name_is_compared_with_those_that_stay():
    [flag] = flags_of([FileEntry(b"src/readme", "file", 0o644, 0, b"")], staying=[b"src/README"])
    assert (flag.kind, flag.other) == ("case", b"src/README")


@given(st.binary(max_size=20))
def test_any_bytes_are_a_name_to_the_checks(name):
    fold(name)
    is_reserved(name)
