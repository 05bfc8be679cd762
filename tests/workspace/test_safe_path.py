"""Unsafe paths, and names that some systems can't hold: many paths are judged like each of them."""

from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.model.safe_path import TOGETHER, explain_unsafe, find_unsafe, flags_of, is_reserved
from holdfast.model.snapshot import FileEntry

NAMES = st.sampled_from((b"", b".", b"..", b"a", b"b", b"a\0", b"...", b".a", b"/", b" "))
PATHS = st.lists(NAMES, max_size=5).map(b"/".join) | st.binary(max_size=8)
ODD_NAMES = st.sampled_from(
    (
        b"con",
        b"CON.txt",
        b"Lpt1 .x",
        b"console",
        b"com0",
        b"a ",
        b"a.",
        b"a\n",
        b"a:b",
        b"a\x1fb",
        b"a\\b",
        b".x",
        b"nul",
    )
) | st.binary(min_size=1, max_size=6).filter(lambda name: b"/" not in name)


@example([b"/a"])
@example([b"/"])
@example([b"a/../b", b"a/b"])
@example([b"a/", b"a/b"])
@given(st.lists(PATHS, max_size=12))
def test_many_are_judged_as_each_of_them_is(paths: list[bytes]):
    assert find_unsafe(paths) == next((path for path in paths if explain_unsafe(path)), None)


def test_an_unsafe_path_is_found_among_many():
    plain = [b"a/%d" % number for number in range(2 * TOGETHER)]
    assert find_unsafe(plain) is None
    assert find_unsafe([*plain, b"a/../b", b"/c"]) == b"a/../b"


@given(st.lists(ODD_NAMES, max_size=8))
def test_reserved_names_are_found_among_others_as_alone(names: list[bytes]):
    entries = [FileEntry(b"%d/%s" % (number, name), "file", 0o644, 0, b"") for number, name in enumerate(names)]
    flagged = [flag.path for flag in flags_of(entries) if flag.kind == "reserved"]
    assert flagged == [entry.path for entry in entries if is_reserved(entry.path.partition(b"/")[2])]
