"""The documents are true: every snippet runs as it stands, every link leads somewhere."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from snippets import DOCUMENTS, ROOT, Snippet, all_snippets, links, snippets

from holdfast import Client, Framework, SyncClient

# A path on somebody's machine has no place in a repository.
_MACHINE_PATH = re.compile(r"/(?:home|Users|root|work)/[\w.-]+")
_TEXT = (".py", ".md", ".toml", ".sql", ".json", ".yml", ".yaml", ".cfg", ".txt", ".sh")


def run(code: str, where: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=where, capture_output=True, text=True, timeout=240, check=False
    )


def quick_if_in_the_readme(snippet: Snippet):
    """Each takes a process: `make check` runs those of the README that import little, `make test` all."""
    is_quick = snippet.document.name == "README.md" and "langgraph.graph" not in snippet.code
    return pytest.param(snippet, marks=[] if is_quick else pytest.mark.slow)


@pytest.mark.parametrize("snippet", [*map(quick_if_in_the_readme, all_snippets("python"))], ids=str)
def test_every_python_snippet_runs_as_it_stands(snippet, tmp_path):
    done = run(snippet.code, tmp_path)
    assert done.returncode == 0, f"{snippet}\n{done.stderr}"
    assert done.stderr == ""


def quick_start() -> tuple[Snippet, Snippet]:
    """The first snippet of the guide to saving, with `await`, and the loop that the README opens with."""
    awaited, *_ = snippets(ROOT / "docs" / "how-to" / "save-and-restore.md", "python")
    loop, *_ = snippets(ROOT / "README.md", "python")
    return awaited, loop


def test_the_quick_start_prints_what_it_says_and_goes_on_where_it_stopped(tmp_path):
    awaited, loop = quick_start()
    assert run(awaited.code, tmp_path).stdout == "{'draft': 1}\n"
    assert (tmp_path / ".holdfast" / "store.db").exists()
    stopped_early = loop.code.replace(", 10):", ", 4):")
    assert stopped_early != loop.code
    assert run(stopped_early, tmp_path).stdout == "4\n"
    assert run(loop.code, tmp_path).stdout == "10\n"
    assert run(loop.code, tmp_path).stdout == "10\n"


@pytest.mark.slow
def test_every_holdfast_command_of_the_readme_runs_after_the_quick_start(tmp_path):
    for snippet in quick_start():
        assert run(snippet.code, tmp_path).returncode == 0
    commands = [
        line
        for snippet in all_snippets("sh")
        for line in snippet.code.splitlines()
        if line.startswith("holdfast ")
        and not line.startswith(("holdfast demo", "holdfast ui"))  # it serves until stopped
    ]
    assert commands
    environment = {key: value for key, value in os.environ.items() if key != "HOLDFAST_URL"}
    for command in commands:
        words = shlex.split(command, comments=True)
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", *words[1:]] if (ROOT / "src/holdfast/__main__.py").exists()
            else [str(Path(sys.executable).with_name("holdfast")), *words[1:]],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        assert done.stdout


@pytest.mark.slow
def test_the_contract_in_ten_lines_is_a_test_that_runs(tmp_path):
    [snippet] = [
        one for one in snippets(ROOT / "docs" / "adding-a-backend.md", "python") if "BackendContract" in one.code
    ]
    (tmp_path / "test_my_backend.py").write_text(snippet.code)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_my_backend.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert re.search(r"\d{2,} passed", done.stdout)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_lead_somewhere(document):
    for target in links(document):
        path, _, anchor = target.partition("#")
        found = (document.parent / path) if path else document
        assert found.exists(), f"{document.name} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", found.read_text("utf-8"), re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in anchors, f"{document.name} links to {target}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_paths_that_documents_name_are_there(document):
    text = document.read_text("utf-8")
    for path in set(re.findall(r"`((?:src|tests|docs|benchmarks|examples)/[\w./-]+)`", text)):
        assert (ROOT / path).exists(), f"{document.name} names {path}"


PROMISES = [*(f"P{number}" for number in range(1, 15)), "P16", "P19", "P20", "P21"]


def test_the_page_of_promises_states_each_once_and_the_readme_leads_there():
    text = (ROOT / "docs" / "promises.md").read_text("utf-8")
    assert re.findall(r"^\| (P\d+) \|", text, re.MULTILINE) == PROMISES
    assert "docs/promises.md" in links(ROOT / "README.md")


def test_the_readme_is_read_in_a_minute():
    lines = (ROOT / "README.md").read_text("utf-8").splitlines()
    assert len(lines) <= 150
    assert "checkpoint store for AI agents" in " ".join(lines[2].split()[:10])
    loop, *_ = snippets(ROOT / "README.md", "python")
    assert len([line for line in loop.code.splitlines() if line.strip()]) <= 10


def test_the_page_of_promises_has_each_and_names_tests_that_are_there():
    text = (ROOT / "docs" / "promises.md").read_text("utf-8")
    sections = re.split(r"^## (P\d+): ", text, flags=re.MULTILINE)[1:]
    assert sections[::2] == PROMISES
    for promise, section in zip(sections[::2], sections[1::2], strict=True):
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", section)
        assert named, promise
        for path, name in named:
            source = (ROOT / path).read_text("utf-8")
            assert re.search(rf"^\s*(async def|def|class) {name}\b", source, re.MULTILINE), f"{promise}: {path}::{name}"


def test_the_table_of_methods_names_methods_of_both_clients():
    table = (ROOT / "docs" / "choosing.md").read_text("utf-8").split("\n## Methods by task\n")[1]
    named = {name for row in table.splitlines() if row.startswith("|") for name in re.findall(r"`(\w+)`", row)}
    assert len(named) > 40
    assert [name for name in named if not (hasattr(Client, name) and hasattr(SyncClient, name))] == []


def test_the_architecture_fits_on_a_few_pages():
    lines = (ROOT / "ARCHITECTURE.md").read_text("utf-8").splitlines()
    assert len(lines) <= 200
    assert max(map(len, lines)) <= 100


def test_the_architecture_draws_the_layers_that_are_enforced():
    configuration = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    [enforced] = [one["layers"] for one in configuration["contracts"] if one["type"] == "layers"]
    section = (ROOT / "ARCHITECTURE.md").read_text("utf-8").split("\n## Layers\n")[1].split("\n## ")[0]
    drawn = [re.findall(r"`(\w+)`", row.split("|")[1]) for row in section.splitlines() if row.startswith("| `")]
    # One name stands for the modules of all frameworks.
    wanted = [["framework" if name in set(Framework) else name for name in rank.split(" : ")] for rank in enforced]
    assert drawn == [list(dict.fromkeys(rank)) for rank in wanted]


def test_the_ratios_of_the_comparison_stand_on_the_page_of_results():
    text = (ROOT / "docs" / "comparison.md").read_text("utf-8").split("\n## Figures\n")[0]
    ratios = re.findall(r"\b\d+\.\d+(?= of | times )", text)
    results = (ROOT / "benchmarks" / "RESULTS.md").read_text("utf-8")
    assert ratios
    assert [ratio for ratio in ratios if f"| {ratio} times |" not in results] == []


def test_the_repository_names_no_machine_paths():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if path.suffix in _TEXT and path.is_file() and name != "tests/docs/test_readme.py":
            found = _MACHINE_PATH.search(path.read_text("utf-8", "replace"))
            assert found is None, f"{name} names {found[0] if found else ''}"


def test_the_license_is_the_one_that_pyproject_names():
    text = (ROOT / "LICENSE").read_text("utf-8")
    assert "Apache License" in text.split("\n", 3)[1]
    assert "END OF TERMS AND CONDITIONS" in text
