"""Paths that may never be written are told, one by one or many after each other."""

from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.model.path_checks import Safety, unsafe_reason

NAMES = st.sampled_from((b"", b".", b"..", b"a", b"b", b"a\0", b"...", b".a", b"/"))
PATHS = st.lists(NAMES, max_size=5).map(b"/".join) | st.binary(max_size=8)


@example([b"/a"])
@example([b"/"])
@example([b"a/../b", b"a/b"])
@example([b"a/", b"a/b"])
@given(st.lists(PATHS, max_size=12))
def test_many_are_judged_as_each_of_them_is(paths: list[bytes]):
    together = Safety()
    assert [bool(together.reason(path)) for path in paths] == [bool(unsafe_reason(path)) for path in paths]
