"""Snapshots of one directory with different options: a restore leaves alone what one excluded."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from trees import on_disk, write

from holdfast import SyncClient


def _repository(root: Path) -> None:
    write(root, b".git/HEAD", b"ref: refs/heads/main\n")


def _results(root: Path) -> None:
    write(root, b".gitignore", b"out/\n")
    write(root, b"out/of-a-long-run", b"a gigabyte\n")


def _packages(root: Path) -> None:
    write(root, b"package.json", b"{}\n")
    write(root, b"node_modules/left-pad/index.js", b"pad\n")


def _secret(root: Path) -> None:
    write(root, b"deploy/.env", b"KEY=1\n")


CASES = {
    "the repository": (_repository, {"include_git": True}),
    "what git ignores": (_results, {"gitignore": False}),
    "what programs make": (_packages, {"default_excludes": False}),
    "a secret": (_secret, {"secrets": "skip"}),
}
Make = Callable[[Path], None]


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[Make, dict, dict]:
    """Something, and the options by which it is left out and taken in."""
    make, options = CASES[request.param]
    return (make, options, {}) if "secrets" in options else (make, {}, options)


def test_what_was_not_to_be_in_a_snapshot_is_not_deleted_by_going_back_to_it(
    client: SyncClient, root: Path, case: tuple[Make, dict, dict]
) -> None:
    make, without, with_it = case
    make(root)
    write(root, b"code.py", b"first\n")
    all_of_it = on_disk(root)
    first = client.workspace(root, **without).snapshot().checkpoint_id
    write(root, b"code.py", b"second\n")
    workspace = client.workspace(root, **with_it)
    workspace.snapshot()

    report = workspace.restore(first)

    assert on_disk(root) == all_of_it
    assert [action.path for action in report.actions] == [b"code.py"]
    assert {one.reason for one in report.left} == {"excluded"}


def test_nor_if_it_came_to_be_after_that(quick: SyncClient, root: Path, case: tuple[Make, dict, dict]) -> None:
    make, without, with_it = case
    make(root)
    write(root, b"code.py", b"first\n")
    made = {path for path in on_disk(root) if path not in (b"code.py", b".gitignore", b"package.json", b"deploy")}
    for path in sorted(made, reverse=True):
        whole = os.path.join(os.fsencode(root), path)
        os.rmdir(whole) if os.path.isdir(whole) else os.unlink(whole)
    first = quick.workspace(root, **without).snapshot().checkpoint_id
    make(root)
    workspace = quick.workspace(root, **with_it)
    workspace.snapshot()

    workspace.restore(first)

    assert made <= on_disk(root).keys()


def test_what_is_not_to_be_in_snapshots_any_more_is_not_written(
    quick: SyncClient, root: Path, case: tuple[Make, dict, dict]
) -> None:
    make, without, with_it = case
    make(root)
    first = quick.workspace(root, **with_it).snapshot().checkpoint_id
    kept = {path for path, (kind, _, _) in on_disk(root).items() if kind == "file"}
    shutil.rmtree(root)
    root.mkdir()
    workspace = quick.workspace(root, **without)
    for name in (b".gitignore", b"package.json"):  # what says that it is left out is there
        if name in kept:
            workspace.restore(first, paths=[name])
    workspace.snapshot()

    report = workspace.restore(first, force=True)

    left = {one.path for one in report.left}
    assert left & kept
    assert not left & on_disk(root).keys()


def test_the_same_options_go_back_all_the_way(quick: SyncClient, root: Path, case: tuple[Make, dict, dict]) -> None:
    make, _, with_it = case
    write(root, b"code.py", b"first\n")
    empty = on_disk(root)
    workspace = quick.workspace(root, **with_it)
    first = workspace.snapshot().checkpoint_id
    make(root)
    workspace.snapshot()

    report = workspace.restore(first)

    assert on_disk(root) == empty
    assert report.left == ()


def test_what_could_not_be_kept_is_not_deleted_once_it_can_be(client: SyncClient, root: Path) -> None:
    os.mkfifo(root / "log")
    workspace = client.workspace(root)
    first = workspace.snapshot()
    assert [one.path for one in first.snapshot.skipped] == [b"log"]
    (root / "log").unlink()
    write(root, b"log", b"now it is a file\n")
    workspace.snapshot()

    report = workspace.restore(first.checkpoint_id)

    assert (root / "log").read_bytes() == b"now it is a file\n"
    assert [one.path for one in report.left] == [b"log"]
