"""What the tests of effects begin with."""

from __future__ import annotations

import pytest
from bank import Bank


@pytest.fixture
def bank() -> Bank:
    return Bank()
