"""What a process says that may be killed at any moment: a whole line, or nothing. (`print` is
several writes where Python is told not to buffer.)"""

from __future__ import annotations

import os


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())
