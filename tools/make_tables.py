"""Generator of the tables "What survives a crash" in docs/frameworks, from the marks of tests.

`python tools/make_tables.py` writes them; with `--check` it fails if one is out of date. A page without
the comment below is left alone. Rows that are marked on several tests name all of them.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
TESTS, PAGES = ROOT / "tests" / "frameworks", ROOT / "docs" / "frameworks"
COMMENT = "<!-- `make fmt` generates this table from the tests -->"
HEAD = ["| What | After the next start | Test |", "|---|---|---|"]


def read_rows(framework: str) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield the marked rows of a framework, and their tests: crash tests first."""
    files = sorted(TESTS.glob(f"test_{framework}*.py"), key=lambda file: (not file.stem.endswith("_crash"), file.name))
    for file in files:
        for test in ast.walk(ast.parse(file.read_text("utf-8"))):
            if not isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for mark in test.decorator_list:
                match mark:
                    case ast.Call(ast.Name("survives"), [ast.Constant(str(what)), ast.Constant(str(then))]):
                        yield (what, then), f"`tests/frameworks/{file.name}::{test.name}`"


def make_table(framework: str) -> list[str]:
    tests: dict[tuple[str, str], list[str]] = {}
    for row, test in read_rows(framework):
        tests.setdefault(row, []).append(test)
    return [*HEAD, *(f"| {what} | {then} | {', '.join(named)} |" for (what, then), named in tests.items())]


def make_page(framework: str, text: str) -> str:
    """Return a page with its table; the same page if it has no generated table."""
    before, comment, after = text.partition(f"{COMMENT}\n\n")
    _, blank, rest = after.partition("\n\n")
    return before + comment + "\n".join(make_table(framework)) + blank + rest if comment else text


def main(*, is_checked: bool) -> int:
    stale = 0
    for page in sorted(PAGES.glob("*.md")):
        text = page.read_text("utf-8")
        made = make_page(page.stem, text)
        if made == text:
            continue
        stale += 1
        if is_checked:
            sys.stderr.write(f"{page.relative_to(ROOT)} is out of date: run `make fmt`\n")
        else:
            page.write_text(made, "utf-8")
    return int(is_checked and stale > 0)


if __name__ == "__main__":
    sys.exit(main(is_checked="--check" in sys.argv[1:]))
