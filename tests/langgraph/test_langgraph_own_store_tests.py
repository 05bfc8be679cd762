"""LangGraph's own tests of its stores, from a checkout that `LANGGRAPH_SRC` names, on `HoldfastStore`. Not in CI."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from paths import SUPPORT

CHECKOUT = os.environ.get("LANGGRAPH_SRC", "")
NEEDED = ("pytest_mock", "pytest_asyncio")


@pytest.mark.slow
@pytest.mark.skipif(not CHECKOUT, reason="LANGGRAPH_SRC names no checkout of LangGraph")
@pytest.mark.skipif(not all(map(importlib.util.find_spec, NEEDED)), reason=f"its tests need {', '.join(NEEDED)}")
def test_the_tests_of_langgraphs_own_store() -> None:
    library = Path(CHECKOUT, "libs", "checkpoint")
    here = str(SUPPORT)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "replaced_store",
            "-o",
            "asyncio_mode=auto",
            "tests/test_store.py",
        ],
        cwd=library,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([here, *filter(None, sys.path)])},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
