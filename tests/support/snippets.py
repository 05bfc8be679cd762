"""The snippets and links of our documents."""

import re
import textwrap
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")])
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<code>.*?)^(?P=indent)```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")


class Snippet(NamedTuple):
    document: Path
    line: int
    language: str
    code: str

    def __str__(self) -> str:
        return f"{self.document.relative_to(ROOT)}:{self.line}"


def snippets(document: Path, *languages: str) -> list[Snippet]:
    text = document.read_text("utf-8")
    return [
        Snippet(document, text.count("\n", 0, found.start()) + 1, found["language"], textwrap.dedent(found["code"]))
        for found in _FENCE.finditer(text)
        if found["language"] in languages
    ]


def all_snippets(*languages: str) -> list[Snippet]:
    """Of the README, docs/ and docs/how-to/."""
    pages = [document for document in DOCUMENTS if document.parent.name in ("docs", "how-to")]
    documents = [ROOT / "README.md", *pages]
    return [snippet for document in documents for snippet in snippets(document, *languages)]


def links(document: Path) -> list[str]:
    """The relative ones; what stands in code is none."""
    prose = re.sub(r"`[^`\n]*`", "", _FENCE.sub("", document.read_text("utf-8")))
    targets = [found["target"] for found in _LINK.finditer(prose)]
    return [target for target in targets if not re.match(r"[a-z]+:", target)]
