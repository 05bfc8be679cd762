"""Which calls have to ask: stakes by reversibility."""

from __future__ import annotations

import pytest

from holdfast import Call, Gate, StakesPolicy, UsageError

KINDS = ("reversible", "idempotent", "irreversible")


@pytest.mark.parametrize(
    ("stakes", "call", "gate"),
    [
        ("low", Call(tool="t", kind="reversible"), Gate.GO),
        ("low", Call(tool="t", kind="irreversible"), Gate.CONFIRM),
        ("low", Call(tool="t", kind="irreversible", undoable=True), Gate.GO),
        ("low", Call(tool="t", kind="idempotent"), Gate.CONFIRM),
        ("high", Call(tool="t", kind="reversible"), Gate.PROPOSE),
        ("high", Call(tool="t", kind="idempotent", undoable=True), Gate.PROPOSE),
        ("high", Call(tool="t", kind="irreversible"), Gate.APPROVE),
        ("high", Call(tool="t", kind="idempotent"), Gate.APPROVE),
        ("high", Call(tool="t", kind="read"), Gate.GO),
    ],
)
def test_the_table(stakes, call, gate):
    assert StakesPolicy({"t": stakes}).gate(call) is gate
    assert StakesPolicy(default=stakes).gate(call) is gate
    assert StakesPolicy(lambda _call: stakes).gate(call) is gate


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_named_has_high_stakes(kind):
    call = Call(tool="new", kind=kind)
    assert StakesPolicy({"other": "low"}).gate(call) is StakesPolicy({"new": "high"}).gate(call)
    assert StakesPolicy(lambda _call: None).gate(call) is StakesPolicy({"new": "high"}).gate(call)


def test_stakes_may_depend_on_the_arguments():
    policy = StakesPolicy(lambda call: "high" if call.arguments["amount"] > 100 else "low")
    assert policy.gate(Call(tool="pay", arguments={"amount": 100})) is Gate.CONFIRM
    assert policy.gate(Call(tool="pay", arguments={"amount": 101})) is Gate.APPROVE


def test_stakes_that_are_neither_are_refused():
    with pytest.raises(UsageError, match="'low' or 'high'"):
        StakesPolicy({"t": "medium"}).gate(Call(tool="t"))
