"""Atomic output of a process that may be killed: a whole line, or nothing.

`print` makes several writes if Python does not buffer.
"""

from __future__ import annotations

import os


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())
