"""What a process remembers of its sessions: the lines used last, within a cap."""

from __future__ import annotations

import threading

from holdfast.format.rows import head
from holdfast.format.state.encoded_list import Groups
from holdfast.format.state.manifest import ListEntry, Tail
from holdfast.format.state.split import KnownList
from holdfast.operations import session_cache
from holdfast.operations.session_cache import SessionTip, TipCache


def line(size: int = 0) -> SessionTip:
    made = SessionTip(tree=b"t" * 16, version=1, head=head.Head(None, 0), head_value=None, checkpoint=None)
    if size:
        entry = ListEntry(("m",), 1, size, b"d" * 32, False, (), Tail(1, 0, 0, 0))
        made.lists[("m",)] = KnownList(entry, Groups(1, size, (b"x" * size,)), None)
    return made


def small(max_bytes: int = 100) -> TipCache:
    return TipCache(max_bytes, threading.Lock())


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


def test_lines_without_encodings_are_capped_by_what_they_take_themselves(monkeypatch):
    monkeypatch.setattr(session_cache, "MAX_TIPS_BYTES", 3 * session_cache.TIP_BYTES)
    remembered = small()
    for name in (b"a", b"b", b"c", b"d"):
        remembered.put(name, line())
    assert [remembered.get(name) is None for name in (b"a", b"b", b"c", b"d")] == [True, False, False, False]


def test_more_sessions_than_any_process_of_before_remembered_are_kept():
    remembered = small()
    for number in range(20_000):
        remembered.put(b"%d" % number, line())
    assert all(remembered.get(b"%d" % number) is not None for number in range(20_000))
