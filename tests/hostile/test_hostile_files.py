"""What an imported snapshot must not bring: repositories, which other programs take commands from, and set-id bits."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from bundles import exported, imported
from click.testing import CliRunner
from forge import Forge, bare, fsmonitor, no_directory

from holdfast import CorruptError, SyncClient
from holdfast.cli.main import cli
from holdfast.model.snapshot import FileEntry
from holdfast.workspace.restore.engine import RestoreEngine

NAMES = [b".git", b".GIT", b".Git", b".g\xe2\x80\x8cit", b".git ", b".git.", b".git::$INDEX_ALLOCATION", b"git~1",
         b".hg", b".jj", b".bzr"]  # fmt: skip


@pytest.fixture
def client(tmp_path: Path) -> SyncClient:
    return SyncClient.sqlite(tmp_path / "mine" / "store.db")


def brought(client: SyncClient, forge: Forge) -> None:
    imported(client, forge.bundle())


def names(place: Path) -> set[bytes]:
    walked = os.walk(os.fsencode(place))
    found = [(where, name) for where, folders, files in walked for name in (*folders, *files)]
    paths = [os.path.join(where, name) for where, name in found]  # noqa: PTH118 - bytes
    return {os.path.relpath(path, os.fsencode(place)) for path in paths}


def run_git(place: Path) -> None:
    subprocess.run(["git", "-C", str(place), "status"], capture_output=True, check=False, timeout=30)


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")
@pytest.mark.parametrize("inside", ["", "sub/"])
@pytest.mark.parametrize("way", ["client", "workspace", "cli", "restore"])
def test_git_runs_no_program_that_a_bundle_brought(client: SyncClient, tmp_path: Path, inside: str, way: str) -> None:
    forge = Forge()
    witness = tmp_path / "witness"
    above = inside.encode()
    folder = [forge.directory(b"sub")] if inside else []
    ref = forge.save_entries(
        [*folder, *fsmonitor(forge, above, str(witness)), *bare(forge, above + b"fixture", str(witness))]
    )
    brought(client, forge)
    work, place = tmp_path / "work", tmp_path / "fork"
    work.mkdir()
    left: list[str] = []
    if way == "client":
        left = [one.path.decode() for one in client.fork(ref, workspace=place).left]
    elif way == "workspace":
        left = [one.path.decode() for one in client.workspace(work).fork(ref, place).left]
    elif way == "restore":
        place.mkdir()
        left = [one.path.decode() for one in client.workspace(place).restore(ref).left]
    else:
        store = str(tmp_path / "mine" / "store.db")
        done = CliRunner().invoke(cli, ["fork", ref, str(place), "--dir", str(work), "--store", store])
        assert done.exit_code == 0, done.output
        left = [line.split()[1] for line in done.output.splitlines() if line.startswith("  left: ")]
    run_git(place / inside)
    run_git(place / inside / "fixture")
    assert not witness.exists()
    assert (place / inside / "run").exists()
    assert sorted(left) == sorted(f"{inside}{name}" for name in (".git", "fixture/HEAD", "fixture/config"))


@pytest.mark.parametrize("name", NAMES, ids=repr)
def test_repositories_are_left_out_in_every_spelling(client: SyncClient, tmp_path: Path, name: bytes) -> None:
    forge = Forge()
    ref = forge.save_entries(
        [
            forge.directory(b"a"),
            forge.directory(b"a/" + name),
            forge.file(b"a/" + name + b"/config", b"x"),
            forge.file(b"a/.gitignore", b"*.log\n"),
            forge.file(b"a/git", b"a file of that name is none"),
        ]
    )
    brought(client, forge)
    [left] = client.fork(ref, workspace=tmp_path / "fork").left
    assert left.path == b"a/" + name
    assert "--include-git" in left.reason
    assert names(tmp_path / "fork") == {b"a", b"a/.gitignore", b"a/git"}


@pytest.mark.parametrize(
    "names_", [(b"HEAD", b"commondir"), (b"HEAD ", b"CommonDir"), (b"HE\xe2\x80\x8cAD", b"commondir.")]
)
def test_a_repository_whose_rest_is_elsewhere_is_left_out(
    client: SyncClient, tmp_path: Path, names_: tuple[bytes, bytes]
) -> None:
    """`commondir` names another directory for its objects and its config, from which git takes programs, too."""
    head, common = names_
    forge = Forge()
    ref = forge.save_entries(
        sorted(
            [
                forge.file(head, b"ref: refs/heads/main\n"),
                forge.file(common, b"rest\n"),
                forge.directory(b"rest"),
                forge.file(b"rest/config", b"[alias]\n\tst = !./run\n"),
                forge.directory(b"rest/objects"),
                forge.directory(b"rest/refs"),
            ]
        )
    )
    brought(client, forge)
    left = client.fork(ref, workspace=tmp_path / "fork").left
    assert {one.path for one in left} == {head, common}
    assert names(tmp_path / "fork") == {b"rest", b"rest/config", b"rest/objects", b"rest/refs"}


def test_a_git_file_or_link_is_left_out_too(client: SyncClient, tmp_path: Path) -> None:
    forge = Forge()
    link = FileEntry(b"sub/.git", "symlink", 0o777, 4, b"/etc")
    ref = forge.save_entries(
        [forge.file(b".git", b"gitdir: /tmp/evil"), forge.directory(b"sub"), link, forge.file(b"x", b"")]
    )
    brought(client, forge)
    forked = client.fork(ref, workspace=tmp_path / "fork")
    assert [one.path for one in forked.left] == [b".git", b"sub/.git"]
    assert names(tmp_path / "fork") == {b"sub", b"x"}


def test_holdfasts_own_directory_is_never_written(client: SyncClient, tmp_path: Path) -> None:
    forge = Forge()
    ref = forge.save_entries(
        [forge.directory(b".holdfast"), forge.file(b".holdfast/store.db", b"x"), forge.file(b"y", b"y")]
    )
    brought(client, forge)
    client.fork(ref, workspace=tmp_path / "fork", include_git=True)
    assert names(tmp_path / "fork") == {b"y"}


def test_they_are_written_if_that_is_asked_for(client: SyncClient, tmp_path: Path) -> None:
    forge = Forge()
    ref = forge.save_entries([forge.directory(b"sub"), *fsmonitor(forge, b"sub/", "nowhere")])
    brought(client, forge)
    (tmp_path / "here").mkdir()
    assert client.fork(ref, workspace=tmp_path / "fork", include_git=True).left == ()
    assert client.workspace(tmp_path / "here").restore(ref, include_git=True).left == ()
    assert (tmp_path / "fork/sub/.git/config").exists()
    assert (tmp_path / "here/sub/.git/config").exists()


def test_what_is_there_stays_when_an_imported_snapshot_is_restored(client: SyncClient, tmp_path: Path) -> None:
    """A repository of the user's own is neither overwritten nor deleted, at any depth."""
    forge = Forge()
    ref = forge.save_entries([forge.directory(b"sub"), *fsmonitor(forge, b"sub/", "nowhere")])
    brought(client, forge)
    here = tmp_path / "here"
    (here / "sub/.git").mkdir(parents=True)
    (here / "sub/.git/config").write_text("mine")
    workspace = client.workspace(here)
    workspace.snapshot("mine")
    report = workspace.restore(ref, any_directory=True)
    assert (here / "sub/.git/config").read_text() == "mine"
    assert b"sub/.git" in {one.path for one in report.left}
    workspace.undo()
    assert not (here / "sub/run").exists()


def test_ones_own_nested_repositories_are_kept(client: SyncClient, tmp_path: Path) -> None:
    here = tmp_path / "here"
    (here / "sub/.git").mkdir(parents=True)
    (here / "sub/.git/config").write_text("mine")
    workspace = client.workspace(here)
    ref = workspace.snapshot("mine").checkpoint_id
    (here / "sub/.git/config").write_text("other")
    workspace.snapshot("other")
    assert workspace.restore(ref).left == ()
    assert (here / "sub/.git/config").read_text() == "mine"
    assert client.fork(ref, workspace=tmp_path / "fork").left == ()
    assert (tmp_path / "fork/sub/.git/config").read_text() == "mine"


def test_what_comes_back_to_its_own_store_is_not_foreign(client: SyncClient, tmp_path: Path) -> None:
    here = tmp_path / "here"
    (here / "sub/.git").mkdir(parents=True)
    ref = client.workspace(here).snapshot("mine").checkpoint_id
    imported(client, exported(client))
    assert client.fork(ref, workspace=tmp_path / "fork").left == ()


def test_a_copy_of_a_store_marks_what_was_marked(client: SyncClient, tmp_path: Path) -> None:
    here = tmp_path / "here"
    (here / "sub/.git").mkdir(parents=True)
    mine = client.workspace(here).snapshot("mine").checkpoint_id
    forge = Forge()
    theirs = forge.save_entries([forge.directory(b"x"), forge.directory(b"x/.git")])
    brought(client, forge)
    other = SyncClient.sqlite(tmp_path / "other.db")
    client.copy_to(other)
    assert other.fork(mine, workspace=tmp_path / "first").left == ()
    assert [one.path for one in other.fork(theirs, workspace=tmp_path / "second").left] == [b"x/.git"]


@pytest.mark.parametrize("way", ["fork", "restore"])
def test_set_id_bits_of_a_bundle_are_dropped_and_reported(client: SyncClient, tmp_path: Path, way: str) -> None:
    forge = Forge()
    ref = forge.save_entries(
        [
            forge.directory(b"d", 0o2775),
            forge.file(b"d/setuid", b"#!/bin/sh\n", 0o4755),
            forge.file(b"d/setgid", b"#!/bin/sh\n", 0o2755),
            forge.file(b"plain", b"x", 0o755),
            forge.directory(b"sticky", 0o1777),
        ]
    )
    brought(client, forge)

    def written(place: Path, **asked: bool) -> set[bytes]:
        if way == "fork":
            report = client.fork(ref, workspace=place, **asked)
        else:
            place.mkdir()
            workspace = client.workspace(place)
            planned = workspace.restore(ref, dry_run=True, **asked)
            report = workspace.restore(ref, **asked)
            assert planned.left == report.left
            assert workspace.restore(ref, **asked).actions == ()  # again is nothing
        return {one.path for one in report.left}

    odd = {b"d", b"d/setuid", b"d/setgid", b"sticky"}
    assert written(tmp_path / "safe") == odd
    modes = {name: stat.S_IMODE((tmp_path / "safe" / os.fsdecode(name)).stat().st_mode) for name in {*odd, b"plain"}}
    assert modes == {b"d": 0o775, b"d/setuid": 0o755, b"d/setgid": 0o755, b"plain": 0o755, b"sticky": 0o777}
    assert written(tmp_path / "asked", include_set_id=True) == set()
    assert stat.S_IMODE((tmp_path / "asked/d/setuid").stat().st_mode) == 0o4755


@pytest.mark.parametrize("asked", [False, True])
def test_a_restore_that_was_cut_off_is_finished_by_the_same_rules(
    client: SyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    forge = Forge()
    ref = forge.save_entries([forge.file(b"run", b"x", 0o4755), forge.directory(b"x"), forge.directory(b"x/.git")])
    brought(client, forge)
    here = tmp_path / "here"
    here.mkdir()
    change = RestoreEngine._change

    async def change_and_die(self, *given):
        await change(self, *given)
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(RestoreEngine, "_change", change_and_die)
        with pytest.raises(SystemExit):
            client.workspace(here).restore(ref, include_set_id=asked)
    (here / "run").unlink()  # as if it had died before
    assert client.workspace(here).resume().left == ()
    assert stat.S_IMODE((here / "run").stat().st_mode) == (0o4755 if asked else 0o755)
    assert names(here) == {b"run", b"x"}


def test_ones_own_modes_are_kept(client: SyncClient, tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "run").write_text("x")
    (here / "run").chmod(0o4755)
    ref = client.workspace(here).snapshot("mine").checkpoint_id
    assert client.fork(ref, workspace=tmp_path / "fork").left == ()
    assert stat.S_IMODE((tmp_path / "fork/run").stat().st_mode) == 0o4755


def test_the_command_line_says_what_was_left_and_takes_the_options(client: SyncClient, tmp_path: Path) -> None:
    forge = Forge()
    ref = forge.save_entries([forge.directory(b"x"), forge.directory(b"x/.git"), forge.file(b"x/run", b"abc", 0o4755)])
    brought(client, forge)
    here = tmp_path / "here"
    here.mkdir()
    common = ["--dir", str(here), "--store", str(tmp_path / "mine" / "store.db")]
    said = CliRunner().invoke(cli, ["restore", ref, "--dry-run", *common])
    assert "left: x/.git (of a repository" in said.output
    assert "left: x/run (its set-id" in said.output
    assert "writes 1 file, 3 B in all" in said.output
    said = CliRunner().invoke(cli, ["restore", ref, "--yes", "--include-git", "--include-set-id", *common])
    assert "left:" not in said.output
    assert (here / "x/.git").is_dir()


@pytest.mark.parametrize("way", ["fork", "restore"])
def test_a_file_without_its_directory_is_refused(client: SyncClient, tmp_path: Path, way: str) -> None:
    forge = Forge()
    ref = no_directory(forge)
    brought(client, forge)
    place = tmp_path / "place"
    with pytest.raises(CorruptError, match="is in no directory"):
        if way == "fork":
            client.fork(ref, workspace=place)
        else:
            place.mkdir()
            client.workspace(place).restore(ref)
    assert not place.exists() or not list(place.iterdir())
