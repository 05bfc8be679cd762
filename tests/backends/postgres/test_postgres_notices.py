"""Which of a server's notices say that no standby has confirmed a commit, whatever language they are in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("psycopg")

from holdfast.backends.postgres.notices import Notices

CANCELLED = {
    "severity": "WARNUNG",
    "severity_nonlocalized": "WARNING",
    "sqlstate": "01000",
    "source_file": "syncrep.c",
    "source_function": "SyncRepWaitForLSN",
}


@pytest.mark.parametrize(
    ("changed", "is_unconfirmed"),
    [
        ({}, True),
        ({"sqlstate": "57P01"}, True),
        ({"source_file": None, "source_function": None}, True),  # a pooler that leaves it out
        ({"severity_nonlocalized": "NOTICE"}, False),
        ({"source_file": "vacuum.c"}, False),
        ({"source_file": None, "sqlstate": "01004"}, False),
        ({"source_file": None, "severity_nonlocalized": None, "severity": "WARNING"}, True),
    ],
)
def test_the_warning_of_a_cancelled_wait(changed: dict[str, Any], is_unconfirmed: bool):
    notices = Notices()
    notices.note(SimpleNamespace(**{**CANCELLED, **changed}))
    assert notices.are_unconfirmed is is_unconfirmed
    notices.clear()
    assert not notices.are_unconfirmed
