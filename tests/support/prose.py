"""Fixed English prose for the messages of tests: measured sizes depend on it, so it never changes.

`prose.txt.zst` is the documentation of one day. Edits of docs/ leave these tests alone.
"""

from pathlib import Path

import zstandard

PROSE = zstandard.decompress(Path(__file__).with_suffix(".txt.zst").read_bytes()).decode("utf-8")
"""391,000 characters: many cuts of it have little in common."""

PAGE = PROSE[76_353:128_145]
"""One page of it, of 52,000 characters."""
