"""What the agents of all frameworks do: they look things up in texts of a fixed random sequence."""

import random
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))  # models that are functions
PROSE = (ROOT / "docs" / "format.md").read_text("utf-8")
Take = Callable[[str], Awaitable[Any]]
chance = random.Random(7)
TOOLS = {"look": "read"}


_share = [1.0]


def shorten(share: float) -> None:
    """Make all texts shorter: `share` of them is left."""
    _share[0] = share


def prose(length: int) -> str:
    length = max(1, round(length * _share[0]))
    start = chance.randrange(len(PROSE) - length)
    return PROSE[start : start + length]


def look(question: str) -> str:
    """Look it up."""
    return prose(3500)
