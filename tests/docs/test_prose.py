"""Prose checks, without exceptions: banned words in src, docs and root pages; first lines of docstrings."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BANNED = ("anew", "whoever", "nobody", "somebody", "inside of", "is told", "in the place of")
FIRST_LINE = 100
COLUMN = 100
WORD = 60
_BANNED = re.compile(r"\b(?:" + "|".join(word.replace(" ", r"\s+") for word in BANNED) + r")\b", re.IGNORECASE)
_LONG_STRING = re.compile(rf'^ *[rR]?"{{3}}(?:\n *)?[^\n]{{{FIRST_LINE + 1}}}', re.MULTILINE)
_SOURCES = (".py", ".pyi", ".sql", ".lua")
_QUOTED = re.compile(r"`[^`\n]*`")  # CONTRIBUTING.md may name a word, as code

_GENERATED = ("format.md", "operations.md")  # parts of them are written by a program
_DOCS = [page for page in (ROOT / "docs").rglob("*.md") if page.name not in _GENERATED and "_build" not in page.parts]
NARROW = [*ROOT.glob("*.md"), *_DOCS, ROOT / "benchmarks" / "README.md"]


def _pages() -> list[Path]:
    sources = [path for path in (ROOT / "src").rglob("*") if path.suffix in _SOURCES]
    return sorted([*sources, *(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").glob("*.py"), *ROOT.glob("*.md")])


def banned_words(text: str) -> list[str]:
    """Return every banned word in a text, also one that is broken over two lines."""
    return _BANNED.findall(text)


def long_first_lines(source: str) -> list[str]:
    """Return the first lines of docstrings that are longer than the limit."""
    if not _LONG_STRING.search(source):
        return []  # nearly every file: parsing all of them takes a while
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    documented = [node for node in ast.walk(ast.parse(source)) if isinstance(node, kinds)]
    first_lines = [(ast.get_docstring(node) or "").partition("\n")[0] for node in documented]
    return [line for line in first_lines if len(line) > FIRST_LINE]


def long_prose_lines(text: str) -> list[str]:
    """Return the lines of prose that reach column 100; a line that one long name fills can't be broken."""
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL).splitlines()
    breakable = [line for line in prose if max(map(len, line.split()), default=0) < WORD]
    return [line for line in breakable if len(line) >= COLUMN and not line.startswith(("|", "#", "    "))]


def violations(path: Path) -> list[str]:
    """Return what is wrong with the prose of a file."""
    text = path.read_text("utf-8")
    found = banned_words(_QUOTED.sub("", text) if path.suffix == ".md" else text)
    return [*found, *long_first_lines(text)] if path.is_relative_to(ROOT / "src") and path.suffix == ".py" else found


def test_no_file_has_a_banned_word_or_a_long_first_line():
    found = {path.relative_to(ROOT).as_posix(): violations(path) for path in _pages()}
    wrong = [f"{name}: {what}" for name, what in found.items() if what]
    assert not wrong, "\n".join(["use other words, or shorten the first line:", *wrong])


@pytest.mark.parametrize("page", NARROW, ids=lambda path: path.name)
def test_lines_of_prose_end_before_column_100(page):
    assert long_prose_lines(page.read_text("utf-8")) == []


def test_a_long_line_of_prose_is_found_outside_of_code_and_tables():
    line = " ".join(["word"] * 20)
    assert long_prose_lines(f"```\n{line}\n```\n| {line} |\n{line[1:]}\n") == []
    assert long_prose_lines(f"{line}x\n") == [f"{line}x"]


def test_a_banned_word_is_found_also_across_lines():
    assert banned_words("Written Anew,\nin the\nplace of it.") == ["Anew", "in the\nplace of"]
    assert banned_words("renewed, insider, in_the_place_of") == []


def test_a_long_first_line_is_found_wherever_it_stands():
    long = "x" * (FIRST_LINE + 1)
    source = f'class A:\n    """Short."""\n\n    async def b(self):\n        """{long}\n\n        More."""\n'
    assert long_first_lines(source) == [long]
    assert long_first_lines(source.replace(long, long[1:])) == []
