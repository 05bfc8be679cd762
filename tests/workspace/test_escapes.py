"""Nothing outside of the root is ever changed by a restore, whatever is swapped in while it runs."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from plain_directory import PlainDirectory
from restore_trees import Tree, on_disk, put

from holdfast import SyncClient
from holdfast.backends import root_directory
from holdfast.errors import CorruptError, HoldfastError, UsageError, WorkspaceChangedError
from holdfast.model.file_restore_plan import FileAction
from holdfast.model.snapshot import FileChange, FileEntry
from holdfast.workspace import dirfd
from holdfast.workspace.restore.apply import Applier, ChangedUnder

INSIDE: Tree = {
    b"d": ("dir", 0o755, b""),
    b"d/secret": ("file", 0o644, b"ours"),
    b"d/sub": ("dir", 0o755, b""),
    b"d/sub/deep": ("file", 0o644, b"ours"),
    b"f": ("file", 0o644, b"ours"),
}
OUTSIDE: Tree = {
    b"secret": ("file", 0o644, b"theirs"),
    b"sub": ("dir", 0o755, b""),
    b"sub/deep": ("file", 0o600, b"theirs"),
}


class Place:
    def __init__(self, folder: Path, client: SyncClient) -> None:
        self.root, self.outside = folder / "root", folder / "outside"
        self.root.mkdir()
        self.outside.mkdir()
        put(self.root, INSIDE)
        put(self.outside, OUTSIDE)
        self.directory = PlainDirectory(client, self.root)

    def untouched_outside(self) -> bool:
        return on_disk(self.outside) == OUTSIDE

    def replace_by_link(self, name: str, target: str) -> None:
        place = self.root / name
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)
        place.symlink_to(target)


@pytest.fixture
def place(tmp_path: Path, quick: SyncClient) -> Place:
    return Place(tmp_path, quick)


def never(descriptor: int, entry: FileEntry) -> bool:
    return False


@pytest.fixture(params=["openat2", "name by name"])
def opening(request, monkeypatch) -> str:
    """Both ways of opening a directory hold."""
    if request.param == "openat2":
        if not root_directory._openat2_works():
            pytest.skip("this kernel has no openat2")
    else:
        monkeypatch.setattr(root_directory, "_openat2_works", lambda: False)
    return request.param


SWAPS: dict[str, Callable[[Place], None]] = {
    "a directory by a link to one outside": lambda place: place.replace_by_link("d", "../outside"),
    "a directory by an absolute link": lambda place: place.replace_by_link("d", str(place.outside)),
    "a directory below by a link": lambda place: place.replace_by_link("d/sub", "../../outside/sub"),
    "a file by a link to one outside": lambda place: place.replace_by_link("f", "../outside/secret"),
    "a file by a hard link to one outside": lambda place: (
        (place.root / "f").unlink(),
        os.link(place.outside / "secret", place.root / "f"),
    ),
}


@pytest.mark.parametrize("swap", SWAPS.values(), ids=SWAPS.keys())
def test_what_is_swapped_in_between_plan_and_apply_is_not_followed(place: Place, opening: str, swap):
    first = place.directory.snapshot()
    for name in ("d/secret", "d/sub/deep", "f"):
        (place.root / name).write_bytes(b"changed")
    (place.root / "d" / "new").write_bytes(b"to be deleted")
    place.directory.snapshot()
    done = []

    def once() -> None:
        if not done:
            done.append(swap(place))

    place.directory.on_look = once  # after the safety snapshot has been taken
    with pytest.raises(HoldfastError):
        place.directory.restore(first)
    assert done
    assert place.untouched_outside()


@pytest.mark.parametrize("swap", SWAPS.values(), ids=SWAPS.keys())
def test_links_that_were_there_before_are_replaced_and_not_followed(place: Place, opening: str, swap):
    first = place.directory.snapshot()
    swap(place)
    place.directory.snapshot()
    place.directory.restore(first)
    assert on_disk(place.root) == INSIDE
    assert place.untouched_outside()


@pytest.mark.parametrize("swap", SWAPS.values(), ids=SWAPS.keys())
@pytest.mark.parametrize("moment", range(1, 7))
def test_what_is_swapped_in_during_the_restore_is_not_followed(place: Place, opening: str, monkeypatch, swap, moment):
    """Before each action in turn. The restore may be refused or not: outside, nothing happens."""
    first = place.directory.snapshot()
    for name in ("d/secret", "d/sub/deep", "f"):
        (place.root / name).write_bytes(b"changed")
    for name in ("d/new", "d/sub/new", "g"):
        (place.root / name).write_bytes(b"to be deleted")
    place.directory.snapshot()
    count = 0
    opened = Applier._parent

    def swapping(self, path: bytes):
        nonlocal count
        count += 1
        if count == moment:
            swap(place)
        return opened(self, path)

    monkeypatch.setattr(Applier, "_parent", swapping)
    with contextlib.suppress(HoldfastError):
        place.directory.restore(first)
    assert count >= moment
    assert place.untouched_outside()


def test_a_directory_that_is_moved_out_is_not_followed(place: Place, opening: str):
    first = place.directory.snapshot()
    (place.root / "d" / "secret").write_bytes(b"changed")
    place.directory.snapshot()

    def move() -> None:
        if (place.root / "d").is_dir():
            (place.root / "d").rename(place.outside / "moved")

    place.directory.on_look = move
    with pytest.raises(WorkspaceChangedError):
        place.directory.restore(first)
    assert (place.outside / "moved" / "secret").read_bytes() == b"changed"


@pytest.mark.parametrize("path", [b"../outside/secret", b"d/../../outside/secret", b"..", b"d/.."])
@pytest.mark.parametrize("doing", ["delete", "create", "replace", "chmod"])
def test_paths_that_lead_out_are_refused_even_when_no_plan_has_checked_them(place, opening, path, doing):
    root = dirfd.open_root(place.root)
    entry = FileEntry(path, "file", 0o644, 4, b"")
    action = FileAction(doing, path, None if doing == "create" else entry, None if doing == "delete" else entry)
    applier = Applier(root, "t", lambda descriptor, entry: True)
    try:
        with pytest.raises((ChangedUnder, OSError)):
            if doing == "delete":
                applier.delete(action)
            elif doing == "chmod":
                applier.change_mode(action)
            else:
                applier.put_file(action, b"evil")
    finally:
        os.close(root)
    assert place.untouched_outside()


@pytest.mark.parametrize("path", [b"../outside/secret", b"/etc/holdfast-test", b"d/../../outside/new"])
def test_a_forged_snapshot_with_such_names_is_refused_whole(place: Place, monkeypatch, path):
    """Were a tree to hold such a name (the reader of trees refuses it already), the plan is refused."""
    from holdfast.workspace.restore import engine

    first = place.directory.snapshot()
    (place.root / "f").write_bytes(b"changed")
    place.directory.snapshot()
    before = on_disk(place.root)
    honest = engine._diff

    async def forged(*given):
        async for change in honest(*given):
            yield change
        yield FileChange(path, None, FileEntry(path, "file", 0o644, 0, b""))

    monkeypatch.setattr(engine, "_diff", forged)
    with pytest.raises(CorruptError):
        place.directory.restore(first)
    assert on_disk(place.root) == before
    assert place.untouched_outside()


def test_links_are_restored_as_text_and_those_that_lead_out_are_flagged(place: Place):
    links = {"out": "../outside/secret", "absolute": str(place.outside), "in": "d/secret", "nowhere": "no/such"}
    for name, target in links.items():
        (place.root / name).symlink_to(target)
    first = place.directory.snapshot()
    for name in links:
        (place.root / name).unlink()
    place.directory.snapshot()
    with pytest.raises(UsageError, match="lead out"):
        place.directory.restore(first, escape="refuse")
    report = place.directory.restore(first)
    assert {name: os.readlink(place.root / name) for name in links} == links
    assert {flag.path for flag in report.flags if flag.kind == "escapes"} == {b"out", b"absolute"}
    assert place.untouched_outside()


def test_names_that_differ_in_case_only_are_flagged_and_restored(place: Place):
    (place.root / "Readme").write_bytes(b"one")
    (place.root / "README").write_bytes(b"two")
    first = place.directory.snapshot()
    (place.root / "Readme").unlink()
    (place.root / "README").unlink()
    place.directory.snapshot()
    report = place.directory.restore(first)
    assert ((place.root / "Readme").read_bytes(), (place.root / "README").read_bytes()) == (b"one", b"two")
    assert [(flag.kind, flag.path) for flag in report.flags] == [("case", b"Readme")]


def test_where_names_fold_the_second_of_two_is_never_written_over_the_first(place: Place, monkeypatch):
    """As on a file system that takes no notice of case: the name is taken when it should be free."""
    (place.root / "Readme").write_bytes(b"one")
    (place.root / "README").write_bytes(b"two")
    first = place.directory.snapshot()
    (place.root / "Readme").unlink()
    (place.root / "README").unlink()
    place.directory.snapshot()
    before = on_disk(place.root)
    rename_new = dirfd.rename_new

    def folding(directory: int, source: bytes, target: bytes) -> None:
        taken = {os.fsencode(name).lower() for name in os.listdir(place.root)}
        if target.lower() in taken:
            raise FileExistsError(17, "File exists")
        rename_new(directory, source, target)

    monkeypatch.setattr(dirfd, "rename_new", folding)
    with pytest.raises(WorkspaceChangedError):
        place.directory.restore(first)
    assert on_disk(place.root) == before
