"""Ignore rules: git's, then our own file, which wins, and defaults, which need their marker."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trees import remove, write

from holdfast import SyncClient

with_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def kept(client: SyncClient, root: Path, **options) -> list[bytes]:
    workspace = client.workspace(root, **options)
    report = workspace.snapshot()
    return [entry.path for entry in workspace.entries(report.checkpoint_id) if entry.kind != "dir"]


# -- as git does -------------------------------------------------------------------------------------------------------


ENVIRONMENT = {"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "HOME": "/"}


@pytest.fixture(scope="module")
def repository(tmp_path_factory) -> Path:
    """An empty repository, elsewhere than what it is asked about."""
    made = tmp_path_factory.mktemp("git")
    subprocess.run(["git", "init", "-q", made], check=True, env=ENVIRONMENT, capture_output=True)
    return made / ".git"


def kept_by_git(repository: Path, root: Path) -> list[bytes]:
    """The files that git would add."""
    found = subprocess.run(
        [
            "git", f"--git-dir={repository}", f"--work-tree={root}",
            "ls-files", "-z", "--others", "--exclude-per-directory=.gitignore",
        ],
        check=True,
        cwd=root,
        env=ENVIRONMENT,
        capture_output=True,
    )  # fmt: skip
    return sorted(path for path in found.stdout.split(b"\0") if path)


CASES = {
    "a name anywhere": "build\n",
    "a name with a star": "*.log\n",
    "only directories": "build/\n",
    "anchored": "/build\n",
    "anchored in the middle": "src/build\n",
    "taken back": "*.log\n!keep.log\n",
    "taken back too late": "build/\n!build/keep.log\n",
    "taken back below a star": "build/*\n!build/keep.log\n",
    "two stars before": "**/build\n",
    "two stars behind": "src/**\n",
    "two stars between": "src/**/keep.log\n",
    "two stars within a name": "s**c\n",
    "one character": "?uild\n",
    "a set": "[bk]*\n",
    "not a set": "[!b]*.log\n",
    "a range": "[a-k]eep.log\n",
    "a class": "[[:alpha:]]uild\n",
    "a set without an end": "[ab\n",
    "a bracket in a set": "[]b]uild\n",
    "escaped": "\\#hash\n\\!bang\n",
    "a comment": "# build\nbuild # no comment\n",
    "spaces at the end": "build  \n",
    "escaped spaces at the end": "space\\ \n",
    "windows lines": "build\r\n*.log\r\n",
    "a backslash at the end": "build\\\n",
    "empty lines": "\n\n   \nbuild\n",
    "a slash alone": "/\n",
    "everything": "*\n",
    "everything but": "*\n!*/\n!*.log\n",
    "a byte order mark": "\ufeffbuild\n",
    "dots": ".*\n",
}
TREE = (
    b"build/a", b"build/keep.log", b"src/build/b", b"src/deep/keep.log", b"src/deep/build", b"keep.log", b"a.log",
    b"#hash", b"!bang", b"space ", b"build # no comment", b"other/build/deep/x", b"\xffodd", b"kuild", b".hidden/x",
)  # fmt: skip


@with_git
@pytest.mark.parametrize("name", CASES)
def test_each_kind_of_rule_is_understood_as_git_does(quick: SyncClient, repository, root: Path, name: str) -> None:
    for path in TREE:
        write(root, path, b"1")
    write(root, b".gitignore", CASES[name].encode())
    assert kept(quick, root) == kept_by_git(repository, root)


PIECES = st.sampled_from(
    ["a", "b", "ab", "*", "**", "?", "/", "/", "[ab]", "[!a]", "[a-b]", ".", "\\a", "\\*", "!", "#", " ", "a*", "*b"]
)
LINES = st.lists(PIECES, min_size=1, max_size=6).map("".join)
RULES = st.lists(LINES, max_size=5).map(lambda lines: "\n".join(lines) + "\n")
NAMES = st.sampled_from(["a", "b", "ab", "ba", "a*", "aab", "c"])
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)


@with_git
@settings(max_examples=examples(80), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(rules=RULES, nested=st.dictionaries(st.sampled_from(["a", "b", "a/b"]), RULES, max_size=2), paths=st.sets(PATHS))
def test_generated_rules_are_understood_as_git_does(
    tmp_path_factory, quick: SyncClient, repository, rules, nested, paths
) -> None:
    root = tmp_path_factory.mktemp("rules") / "project"
    root.mkdir()
    for path in sorted(paths, key=len, reverse=True):
        if not (root / path).exists():
            try:
                write(root, path.encode(), b"1")
            except (NotADirectoryError, FileExistsError):
                continue
    write(root, b".gitignore", rules.encode())
    for directory, lines in nested.items():
        if (root / directory).is_dir():
            write(root, directory.encode() + b"/.gitignore", lines.encode())
    assert kept(quick, root) == kept_by_git(repository, root), (rules, nested)


# -- our own -----------------------------------------------------------------------------------------------------------


def test_our_own_file_wins_and_can_take_back(quick: SyncClient, root: Path) -> None:
    for path in (b"a.log", b"b.log", b"deep/c.log", b"secret/x", b"data/y"):
        write(root, path, b"1")
    write(root, b".gitignore", b"*.log\ndata/\n")
    write(root, b"deep/.gitignore", b"*\n")
    write(root, b".holdfastignore", b"!*.log\n!data/\nsecret/\nb.log\n")
    assert kept(quick, root) == [b".gitignore", b".holdfastignore", b"a.log", b"data/y", b"deep/c.log"]


def test_rules_can_be_switched_off(quick: SyncClient, root: Path) -> None:
    write(root, b"a.log", b"1")
    write(root, b"__pycache__/x", b"1")
    write(root, b".gitignore", b"*.log\n")
    assert kept(quick, root, gitignore=False, default_excludes=False) == [b".gitignore", b"__pycache__/x", b"a.log"]


def test_defaults_hold_only_beside_their_marker(quick: SyncClient, root: Path) -> None:
    write(root, b"web/node_modules/x/index.js", b"1")
    write(root, b"web/package.json", b"{}")
    write(root, b"plain/node_modules/x", b"1")
    write(root, b"rust/target/x", b"1")
    write(root, b"rust/Cargo.toml", b"")
    write(root, b"shop/target/x", b"1")
    write(root, b".venv/pyvenv.cfg", b"")
    write(root, b".venv/lib/x", b"1")
    write(root, b"venv/x", b"1")
    write(root, b".cache/CACHEDIR.TAG", b"Signature: 8a477f597d28d172789f06886806bc55")
    write(root, b".cache/x", b"1")
    write(root, b"pkg/__pycache__/x.pyc", b"1")
    for path in (b"data.csv", b"poetry.lock", b"image.png", b"app.db", b"build/x", b"dist/x", b"vendor/x", b"env/x"):
        write(root, path, b"1")  # what others leave out by name or extension
    report = quick.workspace(root).snapshot()
    assert {(one.text, one.rule) for one in report.snapshot.excluded} == {
        ("web/node_modules", "by default: beside package.json"),
        ("rust/target", "by default: beside Cargo.toml"),
        (".venv", "by default: a virtual environment (pyvenv.cfg)"),
        (".cache", "by default: a cache (CACHEDIR.TAG)"),
        ("pkg/__pycache__", "by default: compiled Python"),
    }
    assert report.snapshot.files == 13


def test_a_default_can_be_taken_back(quick: SyncClient, root: Path) -> None:
    write(root, b"package.json", b"{}")
    write(root, b"node_modules/x", b"1")
    write(root, b".holdfastignore", b"!node_modules/\n")
    assert b"node_modules/x" in kept(quick, root)


@pytest.mark.parametrize("marker", [b"pyvenv.cfg", b"CACHEDIR.TAG"])
def test_what_a_marker_in_it_leaves_out_can_be_taken_back(quick: SyncClient, root: Path, marker: bytes) -> None:
    workspace = quick.workspace(root)

    def now() -> list[bytes]:
        return [one.path for one in workspace.entries(workspace.snapshot().checkpoint_id) if one.kind == "file"]

    write(root, b"venv/" + marker, b"")
    write(root, b"sub/venv/" + marker, b"")
    write(root, b"other/" + marker, b"")
    assert now() == []
    write(root, b".gitignore", b"!*/\n")  # is about what git looks into
    assert now() == [b".gitignore"]
    write(root, b".holdfastignore", b"!venv/\n")
    both = workspace.snapshot().checkpoint_id
    assert now() == [b".gitignore", b".holdfastignore", b"sub/venv/" + marker, b"venv/" + marker]
    write(root, b"venv/later", b"1")
    assert b"venv/later" in now()
    assert [action.path for action in workspace.restore(both).actions] == [b"venv/later"]
    remove(root, b".holdfastignore")
    assert now() == [b".gitignore"]
    report = workspace.restore(both)  # what is left out now is left alone
    assert [action.path for action in report.actions] == [b".holdfastignore"]


def test_markers_and_rules_that_come_and_go_are_noticed(quick: SyncClient, root: Path) -> None:
    workspace = quick.workspace(root)

    def now() -> list[bytes]:
        return [one.path for one in workspace.entries(workspace.snapshot().checkpoint_id) if one.kind == "file"]

    write(root, b"env/lib/x", b"1")
    write(root, b"sub/y.log", b"1")
    assert now() == [b"env/lib/x", b"sub/y.log"]
    write(root, b"env/pyvenv.cfg", b"")
    assert now() == [b"sub/y.log"]
    write(root, b".gitignore", b"*.log\n")
    assert now() == [b".gitignore"]
    remove(root, b"env/pyvenv.cfg")
    assert now() == [b".gitignore", b"env/lib/x"]
    write(root, b"sub/.gitignore", b"!y.log\n")
    assert now() == [b".gitignore", b"env/lib/x", b"sub/.gitignore", b"sub/y.log"]
    remove(root, b".gitignore")
    assert now() == [b"env/lib/x", b"sub/.gitignore", b"sub/y.log"]


def test_how_many_were_left_out_is_said_when_they_are_too_many_to_name(quick: SyncClient, root: Path) -> None:
    for number in range(300):
        write(root, b"%d.log" % number, b"1")
    write(root, b".gitignore", b"*.log\n")
    snapshot = quick.workspace(root).snapshot().snapshot
    assert snapshot.excluded_count == 300
    assert len(snapshot.excluded) == 200


def test_how_much_is_left_out_is_counted_when_asked_for(quick: SyncClient, root: Path) -> None:
    write(root, b".gitignore", b"*.log\n")
    write(root, b"a.log", b"12345")
    write(root, b"package.json", b"{}")
    write(root, b"node_modules/one/index.js", b"x" * 100)
    write(root, b"node_modules/two/index.js", b"x" * 200)
    (root / "node_modules/link").symlink_to("/etc")
    write(root, b"kept", b"1")
    os.mkfifo(root / "pipe")
    found = quick.workspace(root).left_out()
    assert [(one.path, one.files, one.size) for one in found] == [
        (b"node_modules", 3, 300),
        (b"a.log", 1, 5),
        (b"pipe", 1, 0),
    ]
    assert [one.reason for one in found] == ["by default: beside package.json", ".gitignore: *.log", "a FIFO"]
