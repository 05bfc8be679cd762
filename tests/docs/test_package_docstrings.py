"""Each package says what lives there, what it may import, and where to start reading."""

import ast
import re
from pathlib import Path

import pytest

import holdfast

ROOT = Path(holdfast.__file__).parent
PACKAGES = sorted(path.parent for path in ROOT.rglob("__init__.py") if path.parent != ROOT)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_package_says_what_it_is_and_where_to_start(package: Path):
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8")))
    assert text is not None
    lines = text.splitlines()
    assert 10 < len(lines[0]) <= 100
    assert lines[1] == ""
    assert lines[2].startswith("May import ")
    start = re.match(r"Start with `([\w/]+\.py)`", lines[3])
    assert start is not None, lines[3]
    assert (package / start[1]).is_file()
