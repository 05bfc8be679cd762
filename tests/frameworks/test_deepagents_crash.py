"""Deep agents on the LangGraph saver: the files of their `StateBackend` are part of the checkpoint."""

from __future__ import annotations

import subprocess
import sys

import pytest
from crash_kit import SETTINGS
from framework_environments import require
from paths import ROOT

require("deepagents")


@pytest.mark.slow
def test_files_come_back_with_the_conversation(tmp_path):
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        example = ROOT / "examples" / "frameworks" / "deepagents_agent.py"
        return subprocess.run(
            [sys.executable, str(example), *words], cwd=tmp_path, env=SETTINGS | {"HOME": str(tmp_path)},
            capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip

    assert run("--crash").returncode == -9
    # The second life reads the file that the first one wrote.
    assert run().stdout.splitlines()[-1] == "I have noted: kelp"
