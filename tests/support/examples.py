"""Number of examples that Hypothesis draws: fewer in `make check` than in `make test`."""

import os

EXAMPLES = int(os.environ.get("HOLDFAST_EXAMPLES", "100"))


def examples(usual: int, *, least: int = 1) -> int:
    """As many as usual in `make test`, in proportion fewer in `make check`."""
    return max(least, usual * EXAMPLES // 100)
