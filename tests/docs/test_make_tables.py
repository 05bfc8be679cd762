"""`tools/make_tables.py`: tables of docs/frameworks are generated from the tests; lint fails if one is stale."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from framework_environments import DISTRIBUTIONS, GRAPHS
from paths import ROOT

TESTS, PAGES = Path("tests/frameworks"), Path("docs/frameworks")


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The tool and what it reads, to change."""
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools/make_tables.py", tmp_path / "tools")
    for folder in (TESTS, PAGES):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def make_tables(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(root / "tools/make_tables.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_tables_are_what_the_tool_generates():
    done = make_tables(ROOT, "--check")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("framework", sorted(DISTRIBUTIONS.keys() - GRAPHS))
def test_the_table_of_each_framework_is_generated(framework: str):
    page = (ROOT / PAGES / f"{framework}.md").read_text()
    _, _, generated = page.partition("<!-- `make fmt` generates this table from the tests -->\n\n| What |")
    assert f"| `tests/frameworks/test_{framework}_crash.py::" in generated


@pytest.mark.slow
def test_a_table_is_stale_once_a_mark_has_changed_or_the_test_is_gone(copied: Path):
    tests, page = copied / TESTS / "test_strands_tools.py", copied / PAGES / "strands.md"
    row, text = "| bytes in messages | kept exactly |", tests.read_text()
    assert row in page.read_text()
    for changed in (
        text.replace('@survives("bytes in messages", "kept exactly")', '@survives("bytes in messages", "lost")'),
        re.sub(r"def (test_bytes_in_messages_\w+)", r"def no_\1", text),
        text.replace('@survives("bytes in messages", "kept exactly")\n', ""),
    ):
        assert changed != text
        tests.write_text(changed)
        stale = make_tables(copied, "--check")
        assert stale.returncode == 1
        assert "strands.md is out of date" in stale.stderr
    assert make_tables(copied).returncode == 0
    assert row not in page.read_text()
    assert make_tables(copied, "--check").returncode == 0


def test_lint_runs_the_check():
    assert "tools/make_tables.py --check" in (ROOT / "Makefile").read_text()
