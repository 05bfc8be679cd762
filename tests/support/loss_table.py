"""The measured table of losses in docs/changing-frameworks.md.

`python tests/support/loss_table.py` writes it.
"""

from __future__ import annotations

import re
from pathlib import Path

from conversations import NAMED, NAMES, convert

from holdfast.client.conversion_targets import TARGETS
from holdfast.model.loss import MEASURED

PAGE = Path(__file__).parents[2] / "docs" / "changing-frameworks.md"
PLACE = re.compile(r"(<!-- losses: .*? -->\n).*?(<!-- end of losses -->)", re.DOTALL)


def make_table() -> str:
    """Return the table: for each kind of loss, the targets that lose it."""
    lost = {name: {loss.kind for loss in convert(NAMED, name).losses} for name in NAMES}
    heads = ["Kind", "Severity", *(TARGETS[name].title for name in NAMES)]
    rows = [
        [f"`{kind}`", str(about.severity), *("lost" if kind in lost[name] else "" for name in NAMES)]
        for kind, about in MEASURED.items()
        if any(kind in lost[name] for name in NAMES)
    ]
    rule = ["---"] * len(heads)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (heads, rule, *rows))


def with_table(page: str) -> str:
    return PLACE.sub(lambda found: f"{found[1]}\n{make_table()}\n{found[2]}", page)


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text("utf-8")), "utf-8")
