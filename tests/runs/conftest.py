"""What all tests of runs share."""

import pytest

from holdfast.runs.runnable import DECLARED


@pytest.fixture(autouse=True)
def no_declared_functions(monkeypatch):
    """Forget functions that other tests of this process have named: a start would take their versions."""
    monkeypatch.setattr(DECLARED, "_found", {})
