"""Measurements that need a process of their own: it prints one JSON object, and its errors are ours."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def run_module(name: str, arguments: list[str]) -> Any:
    return json.loads(_output([sys.executable, "-m", name, *arguments]))


def run_code(code: str) -> Any:
    return json.loads(_output([sys.executable, "-c", code]))


def _output(command: list[str]) -> str:
    # As in a user's process, where modules are compiled once and not at every import.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.run(command, cwd=ROOT, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout
