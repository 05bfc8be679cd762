"""LangGraph's own core tests, from a checkout that `LANGGRAPH_SRC` names, on `HoldfastSaver`. Not in CI.

The checkout is of the installed version of langgraph. About 1,300 tests take a saver from a
fixture; the others are left out.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from paths import SUPPORT

CHECKOUT = os.environ.get("LANGGRAPH_SRC", "")
NEEDED = ("pytest_mock", "syrupy", "Crypto", "psycopg_pool", "xdist")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not CHECKOUT, reason="LANGGRAPH_SRC names no checkout of LangGraph")
@pytest.mark.skipif(not all(map(importlib.util.find_spec, NEEDED)), reason=f"its tests need {', '.join(NEEDED)}")
def test_the_tests_of_langgraphs_own_core() -> None:
    here = str(SUPPORT)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "replaced_savers", "-p", "no:cacheprovider", "tests"],
        cwd=Path(CHECKOUT, "libs", "langgraph"),
        env={**os.environ, "NO_DOCKER": "true", "PYTHONPATH": os.pathsep.join([here, *filter(None, sys.path)])},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None and int(passed[1]) > 1000, done.stdout[-2000:]
