"""What a process remembers of its sessions: the lines used last, within a cap."""

from __future__ import annotations

import threading

from holdfast.objects import rows
from holdfast.objects.groups import Groups
from holdfast.objects.manifest import ListEntry, Tail
from holdfast.objects.split import KnownList
from holdfast.objects.witness import witness
from holdfast.operations import memory
from holdfast.operations.memory import Line, LineMemory


def line(size: int = 0) -> Line:
    made = Line(tree=b"t" * 16, version=1, head=rows.Head(None, 0), head_value=None, tip=None)
    if size:
        entry = ListEntry(("m",), 1, size, b"d" * 32, False, (), Tail(1, 0, 0, 0))
        made.lists[("m",)] = KnownList(entry, Groups(1, size, (b"x" * size,)), None)
    return made


def small(max_bytes: int = 100) -> LineMemory:
    return LineMemory(max_bytes, threading.Lock())


def test_gives_back_what_was_put():
    remembered, kept = small(), line()
    assert remembered.get(b"s") is None
    remembered.put(b"s", kept)
    assert remembered.get(b"s") is kept
    remembered.drop(b"s")
    remembered.drop(b"s")
    assert remembered.get(b"s") is None


def test_the_bytes_never_exceed_the_cap_and_the_line_used_last_stays():
    remembered = small(100)
    remembered.put(b"a", line(40))
    remembered.put(b"b", line(40))
    remembered.get(b"a")
    remembered.put(b"c", line(40))
    assert remembered.buffered_bytes == 80
    assert remembered.get(b"b") is None
    assert remembered.get(b"a") is not None
    assert remembered.get(b"c") is not None


def test_another_line_of_a_session_takes_its_place():
    remembered = small(100)
    for size in (10, 90, 30):
        remembered.put(b"s", line(size))
        assert remembered.buffered_bytes == size
    remembered.clear()
    assert (remembered.buffered_bytes, remembered.get(b"s")) == (0, None)


def test_a_line_larger_than_the_cap_is_not_kept():
    remembered = small(100)
    remembered.put(b"a", line(40))
    remembered.put(b"s", line(101))
    assert remembered.buffered_bytes <= 100


def test_lines_without_bytes_are_capped_by_their_number(monkeypatch):
    monkeypatch.setattr(memory, "LINES_REMEMBERED", 3)
    remembered = small()
    for name in (b"a", b"b", b"c", b"d"):
        remembered.put(name, line())
    assert [remembered.get(name) is None for name in (b"a", b"b", b"c", b"d")] == [True, False, False, False]


def watched_line(size: int) -> Line:
    made = line(size)
    known = made.lists[("m",)]
    assert known.groups is not None
    made.lists[("m",)] = KnownList(known.entry, known.groups._replace(witnesses=(witness([{"a": 1}], ()),)), None)
    return made


def test_where_there_is_too_much_witnesses_go_first_those_used_longest_ago():
    one = watched_line(10)
    remembered = small(3 * one.buffered_bytes() + 10)
    lines = {name: watched_line(10) for name in (b"a", b"b", b"c")}
    for name, kept in lines.items():
        remembered.put(name, kept)
    assert all(kept.is_watched() for kept in lines.values())
    remembered.get(b"a")
    remembered.put(b"d", one)
    assert [remembered.get(name) for name in lines] == [*lines.values()], "all are remembered"
    assert [kept.is_watched() for kept in lines.values()] == [True, False, True]
    assert one.is_watched()
    assert remembered.buffered_bytes == 3 * one.buffered_bytes() + 10
    for name in (*lines, b"d"):
        remembered.drop(name)
    assert remembered.buffered_bytes == 0


def test_what_had_to_be_let_go_is_not_watched_again():
    kept = watched_line(10)
    kept.unwatch()
    (known,) = kept.lists.values()
    assert known.groups is not None
    assert known.groups.witnesses == ()
    assert known.groups.places is None
