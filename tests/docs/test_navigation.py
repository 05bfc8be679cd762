"""Each page of the documentation ends with links to the pages before and after it."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
from paths import ROOT

DOCS = ROOT / "docs"
INCLUDED = {"overview", "architecture", "benchmarks", "changes"}  # on the site they show a file of the repository


def pages() -> list[str]:
    """Return the pages in the order of the site's table of contents."""
    trees = re.findall(r"```\{toctree\}\n(.*?)```", (DOCS / "index.md").read_text("utf-8"), re.DOTALL)
    lines = [line.strip() for tree in trees for line in tree.splitlines()]
    return [line for line in lines if line and not line.startswith(":") and line not in INCLUDED]


def linked(page: str, word: str) -> Path | None:
    last = (DOCS / f"{page}.md").read_text("utf-8").rstrip().rpartition("\n\n")[2]
    link = re.search(rf"\b{word}: \[[^\]]+\]\(([^)]+)\)", " ".join(last.split()))
    return (DOCS / page).parent.joinpath(link[1]).resolve() if link else None


@pytest.mark.parametrize(("page", "after"), list(pairwise(pages())))
def test_a_page_links_to_its_neighbours(page: str, after: str):
    assert linked(page, "Next") == DOCS / f"{after}.md"
    assert linked(after, "Before") == DOCS / f"{page}.md"


FRAMEWORKS = DOCS / "frameworks"  # leaves: their index lists them all


@pytest.mark.parametrize("page", sorted(FRAMEWORKS.glob("[!i]*.md")), ids=lambda path: path.stem)
def test_the_page_of_a_framework_links_to_their_index(page: Path):
    assert linked(f"frameworks/{page.stem}", "All frameworks") == FRAMEWORKS / "index.md"
    assert ":glob:" in (FRAMEWORKS / "index.md").read_text("utf-8")


@pytest.mark.parametrize("page", sorted(FRAMEWORKS.glob("[!i]*.md")), ids=lambda path: path.stem)
def test_the_page_of_a_framework_says_what_survives_and_names_the_tests(page: Path):
    """The first table of a page has a row for each thing that survives a crash, or does not."""
    text = page.read_text("utf-8")
    assert text.index("```python") < text.index("\n| ")  # it begins with the changed line
    table = text[text.index("\n| ") :].lstrip().partition("\n\n")[0].splitlines()[2:]
    assert table
    for row in table:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row)
        assert named, row
        for path, name in named:
            assert re.search(rf"^\s*(async )?def {name}\b", (ROOT / path).read_text("utf-8"), re.MULTILINE), row


def test_every_page_is_in_the_table_of_contents():
    found = {
        path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md") if "_build" not in path.parts
    }
    leaves = {f"frameworks/{path.stem}" for path in FRAMEWORKS.glob("*.md")}
    assert found - {*pages(), *INCLUDED, *leaves, "index"} == set()
