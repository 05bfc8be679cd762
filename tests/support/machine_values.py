"""Plain values of lists and states, for runs of many steps."""

from __future__ import annotations

import copy
import math
import operator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

# Any value at all is the codec's test (test_codec.py): here a few of each kind, drawn cheaply, so that runs are long.
ODD = [
    None, True, 0, 1, 1.0, -0.0, math.nan, 2**70, "\ud800", b"\x00", bytearray(b"b"), (1, (2,)), {3}, frozenset({4}),
    {1: "int", None: "none"}, Decimal("1.10"), datetime(2026, 1, 2, tzinfo=UTC), [], {}, ["nested", ["x" * 200] * 9],
    {"deep": {"m": [{"text": "y" * 300}] * 20}}, "long" * 2000, b"long" * 2000,
]  # fmt: skip
odd = st.integers(0, len(ODD) - 1).map(lambda index: copy.deepcopy(ODD[index]))


def message(number: int) -> Any:
    """One of a hundred elements, tiny to large; the same number gives the same one."""
    return {"role": "user", "content": f"{number}:".ljust((5, 90, 700)[number % 3], "xyz"[number % 3]), "n": number}


def some(count: int, size: int, salt: int) -> list[Any]:
    return [{"i": i, "t": f"{salt}{i}".ljust(size, "-")} for i in range(count)]


elements = st.integers(0, 99).map(message) | odd
# A few elements, or enough of them to cross every threshold.
stretches = st.lists(elements, max_size=4) | st.builds(
    some, st.sampled_from([7, 8, 40, 150]), st.sampled_from([10, 120, 520]), st.integers(0, 3)
)
# Strings around the size from which on they are kept apart, and well beyond.
large = st.builds(
    operator.mul,
    st.sampled_from(["a", "é", "\ud800", b"\x00", b"z"]),
    st.sampled_from([0, 10, 4095, 4096, 4097, 70_000]),
)
