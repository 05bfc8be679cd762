"""Child process with limits of time and memory, for code that may hang or exhaust memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MEMORY = 1 << 30  # bytes of address space: what Python, holdfast and LangGraph take is less than half of it
SECONDS = 30.0


def run(script: str, *arguments: object, memory: int = MEMORY, seconds: float = SECONDS) -> Any:
    """What a script of this folder prints as JSON. Fails if it needs more memory or time."""
    return json.loads(output(script, *arguments, memory=memory, seconds=seconds))


def output(script: str, *arguments: object, memory: int = MEMORY, seconds: float = SECONDS) -> str:
    limit = f"import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_AS, ({memory}, {memory})); "
    command = [
        sys.executable,
        "-c",
        limit + "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')",
    ]
    command += [str(HERE / script), *map(str, arguments)]
    paths = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(HERE), str(HERE.parent))))
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=seconds, check=False, env=os.environ | {"PYTHONPATH": paths}
    )
    assert done.returncode == 0, f"ended with {done.returncode}: {done.stderr[-2000:]}"
    return done.stdout
