"""Leases with background renewal, for tests on a busy machine."""

from collections.abc import Callable

import pytest

from holdfast import LeaseLostError


def in_time(story: Callable[[int], object]) -> None:
    """Tells a story about a lease that is renewed in time, with so many seconds. Where that is
    lost, since the machine is too busy to renew it, with more."""
    for seconds in (1, 4):
        try:
            story(seconds)
        except (LeaseLostError, pytest.fail.Exception):
            continue
        return
    story(16)
