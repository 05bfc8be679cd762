"""The tree of a snapshot's entries is a function of the entries: however it came about, whatever is compared."""

from __future__ import annotations

from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from holdfast.backends.bridge.step import run_inline
from holdfast.format.files import file_tree
from holdfast.model.snapshot import FileChange, FileEntry

NAMES = st.integers(0, 4000).map(lambda number: b"%x" % number)
PATHS = st.lists(NAMES, min_size=1, max_size=2).map(b"/".join)
ENTRIES = st.builds(
    FileEntry,
    PATHS,
    st.just("file"),
    st.sampled_from((0o644, 0o600, 0o4755)),
    st.integers(0, 1 << 40),
    st.sampled_from((b"\1" * 32, b"\2" * 32)),
)
TREES = st.dictionaries(PATHS, st.integers(0, 3), max_size=400)


def entry(path: bytes, size: int) -> FileEntry:
    return FileEntry(path, "file", 0o644, size, bytes(32))


def made(tree: dict[bytes, int]) -> dict[bytes, FileEntry]:
    return {path: entry(path, size) for path, size in tree.items()}


class Nodes:
    """A store of nodes that counts what is read."""

    def __init__(self) -> None:
        self.nodes: dict[bytes, bytes] = {}
        self.read: list[bytes] = []

    def keep(self, built: file_tree.Built) -> bytes:
        self.nodes |= built.nodes
        return built.root

    async def load(self, hashes) -> list[bytes]:
        self.read += hashes
        return [self.nodes[hash_] for hash_ in hashes]

    def entries(self, root: bytes) -> list[FileEntry]:
        async def gathered() -> list[FileEntry]:
            return [found async for found in file_tree.entries(root, self.load)]

        return run_inline(gathered())

    def diff(self, before: bytes, after: bytes) -> list[FileChange]:
        async def gathered() -> list[FileChange]:
            return [found async for found in file_tree.diff(before, after, self.load)]

        return run_inline(gathered())


def many(count: int) -> dict[bytes, FileEntry]:
    return {path: entry(path, 1) for path in (b"src/pkg%d/module_%d.py" % (n % 97, n) for n in range(count))}


@given(st.lists(ENTRIES, max_size=300), st.randoms())
def test_the_order_of_entries_does_not_matter(entries, random) -> None:
    unique = list({one.path: one for one in entries}.values())
    shuffled = list(unique)
    random.shuffle(shuffled)
    nodes = Nodes()
    root = nodes.keep(file_tree.build(unique))
    assert file_tree.build(shuffled).root == root
    assert nodes.entries(root) == sorted(unique)


@given(TREES, st.dictionaries(PATHS, st.none() | st.integers(0, 3), max_size=60), st.booleans())
def test_an_updated_tree_is_the_one_built_from_scratch(tree, edits, remove_most) -> None:
    before = made(tree)
    changes = {path: None if size is None else entry(path, size) for path, size in edits.items()}
    if remove_most:
        changes |= dict.fromkeys(sorted(before)[:-3])
    after = {path: one for path, one in (before | changes).items() if one is not None}
    nodes = Nodes()
    root = nodes.keep(file_tree.build(before.values()))
    updated = run_inline(file_tree.update(root, changes, nodes.load))
    assert updated.root == file_tree.build(after.values()).root
    nodes.keep(updated)
    assert nodes.entries(updated.root) == sorted(after.values())


@given(TREES, TREES)
def test_a_difference_is_what_differs_and_leads_from_one_to_the_other(first, second) -> None:
    before, after = made(first), made(second)
    nodes = Nodes()
    a, b = nodes.keep(file_tree.build(before.values())), nodes.keep(file_tree.build(after.values()))
    changes = nodes.diff(a, b)
    assert changes == [
        FileChange(path, before.get(path), after.get(path))
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path)
    ]
    updated = run_inline(file_tree.update(a, {change.path: change.after for change in changes}, nodes.load))
    assert updated.root == b


def test_every_boundary_may_come_and_go() -> None:
    """Each path of a tree of several levels is removed and put back: the boundaries at all levels are among them."""
    entries = many(5000)
    nodes = Nodes()
    root = nodes.keep(file_tree.build(entries.values()))
    for path in sorted(entries, key=file_tree._reach)[-examples(120, least=30) :]:
        without = run_inline(file_tree.update(root, {path: None}, nodes.load))
        assert without.root == file_tree.build(one for one in entries.values() if one.path != path).root
        nodes.keep(without)
        again = run_inline(file_tree.update(without.root, {path: entries[path]}, nodes.load))
        assert again.root == root


def test_one_changed_file_costs_a_leaf_and_the_nodes_above_it_at_any_size() -> None:
    for count in (3_000, 30_000):
        entries = many(count)
        nodes = Nodes()
        root = nodes.keep(file_tree.build(entries.values()))
        path = sorted(entries)[count // 2]
        nodes.read.clear()
        updated = run_inline(file_tree.update(root, {path: entry(path, 2)}, nodes.load))
        assert len(updated.nodes) <= 5
        assert len(nodes.read) <= 5
        nodes.keep(updated)
        nodes.read.clear()
        [change] = nodes.diff(root, updated.root)
        assert change.path == path
        assert len(nodes.read) <= 10


def test_a_change_that_is_none_makes_no_nodes() -> None:
    entries = many(500)
    nodes = Nodes()
    root = nodes.keep(file_tree.build(entries.values()))
    path = min(entries)
    assert run_inline(file_tree.update(root, {path: entries[path], b"absent": None}, nodes.load)) == (root, {})


@given(TREES, PATHS)
def test_an_entry_is_found_by_its_path(tree, path) -> None:
    entries = made(tree)
    nodes = Nodes()
    root = nodes.keep(file_tree.build(entries.values()))
    for wanted in (path, *list(entries)[:3]):
        assert run_inline(file_tree.find(root, wanted, nodes.load)) == entries.get(wanted)
