"""The output of `--json`: fields are added, never renamed or removed. See docs/json-output.md."""

from __future__ import annotations

import json
import sys
from typing import Any


def print_json(value: Any) -> None:
    """Print JSON in ASCII only: nothing in a name or a state can act as a command to the terminal."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")
