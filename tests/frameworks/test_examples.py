"""Examples and pages of the frameworks that this environment has: they run, and print what they say.

To add one, add files only: `examples/frameworks/<framework>_*.py`, whose docstring has a shell session
(`shell_session`), and `docs/frameworks/<framework>.md`, whose snippets run as one program (`run_page`), after
`tests/frameworks/preludes/<framework>.py` if that is there.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from crash_kit import SETTINGS
from framework_environments import DISTRIBUTIONS, EXPECTED, is_installed
from paths import ROOT
from shell_session import read_commands, run_commands

EXAMPLES = sorted((ROOT / "examples" / "frameworks").glob("*.py"))
PAGES = sorted(page for page in (ROOT / "docs" / "frameworks").glob("*.md") if page.stem != "index")
PRELUDES = Path(__file__).parent / "preludes"
SUPPORT = ROOT / "tests" / "support"


def framework_of(path: Path) -> str:
    [name] = [name for name in DISTRIBUTIONS if path.stem == name or path.stem.startswith(f"{name}_")]
    return name


def of_this_environment(paths: list[Path]) -> list[Path]:
    return [path for path in paths if framework_of(path) in EXPECTED]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """What the commands see: no telemetry, no network, no home directory of a person."""
    home = tmp_path / "home"
    home.mkdir()
    paths = {"HOME": str(home), "CREWAI_STORAGE_DIR": str(home), "PYTHONPATH": str(SUPPORT)}
    return SETTINGS | {"CI": os.environ.get("CI", "")} | paths


def skip_unless_installed(path: Path) -> None:
    framework = framework_of(path)
    if not is_installed(framework):
        pytest.skip(f"{DISTRIBUTIONS[framework]} is not installed in {sys.prefix}: `make framework-tests` installs it")


@pytest.mark.parametrize("path", of_this_environment(EXAMPLES), ids=lambda path: path.stem)
def test_an_example_prints_what_its_docstring_says(path, tmp_path, environment):
    skip_unless_installed(path)
    commands = read_commands(ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "")
    assert [f"examples/frameworks/{path.name}" in one.words for one in commands].count(True), path
    directory = tmp_path / "work"
    directory.mkdir()
    run_commands(commands, directory, environment)


@pytest.mark.parametrize("page", of_this_environment(PAGES), ids=lambda path: path.stem)
def test_the_snippets_of_a_page_run(page, tmp_path, environment):
    skip_unless_installed(page)
    prelude = PRELUDES / f"{page.stem}.py"
    directory = tmp_path / "work"
    directory.mkdir()
    done = subprocess.run(
        [sys.executable, str(SUPPORT / "run_page.py"), str(page), *([prelude] if prelude.exists() else [])],
        cwd=directory, env=environment, capture_output=True, text=True, encoding="utf-8", timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
