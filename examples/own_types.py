"""Your own classes in a state: register them, and they come back as what they were.

    python examples/own_types.py

The store only ever holds the name under which a class was registered; what that name means is decided by the program
that reads it. Nothing that is stored is ever executed.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum

import holdfast
from holdfast import SyncClient, UnsupportedValueError


@holdfast.register
class Status(Enum):
    OPEN = "open"
    PAID = "paid"


@holdfast.register(name="invoice")
@dataclass(frozen=True)
class Invoice:
    number: str
    amount: Decimal
    due: datetime
    status: Status = Status.OPEN


class Connection:
    """Not data: it can't be stored, and must not be."""


with SyncClient.memory() as client:
    state = {"invoices": [Invoice("INV-4821", Decimal("199.90"), datetime(2026, 3, 1, tzinfo=UTC))], "seen": {1, 2}}
    id_ = client.save(agent_id="accountant", execution_state=state)
    restored = client.restore(id_).execution_state
    assert restored == state
    print(restored["invoices"][0])

    try:
        client.save(agent_id="accountant", execution_state={"tools": {"db": Connection()}})
    except UnsupportedValueError as refusal:
        print(f"refused, with nothing stored: {refusal}")
