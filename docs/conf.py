"""The documentation as a site: `make docs` builds it into docs/_build/html, and a warning is an error."""

import os
import re
from pathlib import Path
from typing import Any

project = "holdfast"
author = "The holdfast authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_click"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "holdfast"

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_inherit_docstrings = False
autodoc_default_options = {"members": True, "inherited-members": True, "exclude-members": "__init__, __new__"}

DOCS = Path(__file__).parent
ROOT = DOCS.parent
# Pages of the site that show a document which stands elsewhere in the repository.
SHOWN = {
    "overview": ROOT / "README.md",
    "architecture": ROOT / "ARCHITECTURE.md",
    "benchmarks": ROOT / "benchmarks" / "RESULTS.md",
    "changes": ROOT / "CHANGELOG.md",
}
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]+)\]\((?P<target>[^)#\s]*)(?P<anchor>#[^)\s]*)?\)")
_MARKDOWN_CODE = re.compile(r"(?<![`\\])`([^`]+)`(?!`)")


def setup(app: Any) -> None:
    app.connect("source-read", _for_the_site)
    app.connect("autodoc-process-docstring", _as_restructured_text)


def _for_the_site(_app: Any, name: str, source: list[str]) -> None:
    document = SHOWN.get(name, DOCS / f"{name}.md")
    text = document.read_text("utf-8") if name in SHOWN else source[0]
    page = DOCS / name
    source[0] = _LINK.sub(lambda link: _link(link, document.parent, page.parent), text)


def _link(link: re.Match[str], here: Path, page: Path) -> str:
    """Return a link that works on the page: to a page or an image; any other file is only named."""
    if not link["target"] or re.match(r"[a-z]+:", link["target"]):
        return link[0]
    target = (here / link["target"]).resolve()
    shown = next((DOCS / f"{name}.md" for name, document in SHOWN.items() if document == target), target)
    if link["image"] or (shown.is_relative_to(DOCS) and shown.suffix == ".md"):
        return f"{link['image']}[{link['text']}]({os.path.relpath(shown, page)}{link['anchor'] or ''})"
    named = target.relative_to(ROOT).as_posix()
    return link["text"] if named in link["text"] else f"{link['text']} (`{named}`)"


def _as_restructured_text(_app: Any, _what: str, _name: str, _thing: Any, _options: Any, lines: list[str]) -> None:
    """Our docstrings are Markdown: code stands in single backticks, and a table is shown as it is written."""
    text = _MARKDOWN_CODE.sub(r"``\1``", "\n".join(lines))
    told: list[str] = []
    for line in text.splitlines():
        if line.startswith("|") and not (told and told[-1].startswith("    |")):
            told += ["::", ""]
        told.append(f"    {line}" if line.startswith("|") else line)
    lines[:] = told
