"""docs/changing-frameworks.md says what is measured, and names what is there."""

from __future__ import annotations

import re

from loss_table import PAGE, make_table, with_table

from holdfast.client.conversion_targets import TARGETS
from holdfast.model.conversion_target import ALWAYS_LOST
from holdfast.model.loss import DECIDED, MEASURED, Severity
from holdfast.model.transcript_moves import DANGLING

TEXT = PAGE.read_text("utf-8")


def test_the_table_of_losses_is_the_measured_one():
    assert with_table(TEXT) == TEXT, "run `python tests/support/loss_table.py`"


def test_the_measured_table_is_that_of_the_targets():
    table = make_table().splitlines()
    names = [one for one in TARGETS.values() if one.opaque is None]
    for row in table[2:]:
        kind, severity, *cells = (cell.strip(" `") for cell in row.strip("|").split("|"))
        assert severity == MEASURED[kind].severity
        assert [cell == "lost" for cell in cells] == [kind in one.loses | ALWAYS_LOST for one in names], kind


def test_the_page_names_every_target_policy_and_severity():
    for name in (*TARGETS, *DANGLING, *Severity):
        assert re.search(rf'`"?{name}"?`', TEXT), name
    for kind in ("tool_calls", "tool_schemas", "native_state"):
        assert kind in DECIDED and f"`{kind}`" in TEXT
