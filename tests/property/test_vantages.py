"""What a look goes by is kept up to date: after any changes every directory that is known is looked at, as what it is known to be."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.workspace import columns, vantages
from holdfast.workspace.statcache import Directory, File, StatCache

PATHS = st.lists(st.sampled_from([b"a", b"b", b"ab"]), max_size=4).map(b"/".join)
DIRECTORIES = st.builds(
    Directory,
    ctime_ns=st.integers(0, 3),
    inode=st.integers(0, 3),
    mode=st.just(0o40755),
    rules=st.just(b""),
    files=st.dictionaries(
        st.sampled_from([b"f", b"g", b"h", b".gitignore"]), st.just(File(1, 1, 1, 0o100644, b"x")), max_size=3
    ),
    excluded=st.dictionaries(st.just(b"out"), st.just("a rule"), max_size=1),
)


@given(
    steps=st.lists(st.tuples(PATHS, st.none() | DIRECTORIES, st.booleans()), max_size=20),
    worth_opening=st.sampled_from([1, 3, 24]),
)
def test_every_plain_directory_is_looked_at_from_one_place(
    steps: list[tuple[bytes, Directory | None, bool]], worth_opening: int
):
    was, vantages.WORTH_OPENING = vantages.WORTH_OPENING, worth_opening
    try:
        cache = StatCache()
        for path, directory, is_looked_at in steps:
            cache.put(path, directory)
            if is_looked_at:
                look_at(cache)
        look_at(cache)
    finally:
        vantages.WORTH_OPENING = was


def look_at(cache: StatCache) -> None:
    chosen = cache.vantages()
    seen = [(vantage.whole(name), known) for vantage in chosen for name, known in vantage.known.items()]
    plain = {path: one for path, one in cache.directories.items() if path and one.is_plain}
    assert sorted(path for path, _ in seen) == sorted(plain)
    assert all(known is plain[path] for path, known in seen)
    assert chosen.deciding == {path for path, one in cache.directories.items() if path and not one.is_plain}
    for vantage in chosen:
        assert vantage.known
        assert all((b"/" + vantage.whole(name) + b"/").startswith(b"/" + vantage.path + b"/" * bool(vantage.path)) for name in vantage.known)  # fmt: skip
        if vantage.columns is None:
            vantage.columns = columns.columns(vantage.known)
        assert vantage.columns == columns.columns(vantage.known)


def test_a_directory_is_opened_for_many_names_and_passed_through_for_few():
    cache = StatCache()
    file = File(1, 1, 1, 0o100644, b"x")
    for path, files in ((b"", 1), (b"a", 0), (b"a/b", 3), (b"a/b/many", 30), (b"a/c", 19), (b"d", 2), (b"d/e", 2)):
        cache.put(path, Directory(1, 1, 0o40755, b"", {b"%d" % number: file for number in range(files)}))
    chosen = {vantage.path: set(vantage.known) for vantage in cache.vantages()}
    assert chosen == {b"": {b"d", b"d/e"}, b"a": {b".", b"b", b"c"}, b"a/b/many": {b"."}}


def test_places_are_chosen_anew_once_many_directories_were_added():
    cache = StatCache()
    for number in range(80):
        cache.put(b"%d" % number, Directory(1, 1, 0o40755, b""))
    first = cache.vantages()
    file = File(1, 1, 1, 0o100644, b"x")
    for number in range(12):
        cache.put(b"new/%d" % number, Directory(1, 1, 0o40755, b"", {b"%d" % name: file for name in range(30)}))
        if number < 10:
            assert cache.vantages() is first
    assert cache.vantages() is not first
    assert {vantage.path for vantage in cache.vantages()} == {b"", *(b"new/%d" % number for number in range(12))}
