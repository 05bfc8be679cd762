"""What a walk goes by is kept up to date: after any changes it is what it would be if it were made anew."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.workspace.statcache import Directory, File, StatCache

PATHS = st.sampled_from([b"", b"a", b"b", b"a/c", b"a/d", b"b/c"])
DIRECTORIES = st.builds(
    Directory,
    ctime_ns=st.integers(0, 3),
    inode=st.integers(0, 3),
    mode=st.just(0o40755),
    rules=st.just(b""),
    files=st.dictionaries(
        st.sampled_from([b"f", b".gitignore", b".holdfastignore"]), st.just(File(1, 1, 1, 0o100644, b"x")), max_size=2
    ),
    excluded=st.dictionaries(st.just(b"out"), st.just("a rule"), max_size=1),
)


@given(st.lists(st.tuples(PATHS, st.none() | DIRECTORIES), max_size=12))
def test_the_layout_is_that_of_the_directories(changes: list[tuple[bytes, Directory | None]]):
    cache = StatCache()
    for path, directory in changes:
        cache.put(path, directory)
        anew = StatCache(directories=cache.directories).layout()
        kept = cache.layout()
        assert kept.plain == anew.plain
        assert sorted(kept.deciding) == sorted(anew.deciding)
        assert all(of[name] is cache.directories[above + b"/" + name if above else name] for above, of in kept.plain.items() for name in of)  # fmt: skip
