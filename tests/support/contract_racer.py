"""Program that registers a version of a contract in a race with another process.

    python contract_racer.py URL TYPE [before|after]

It waits for a line before it registers. With a moment it kills itself right before or after its first commit.
"""

from __future__ import annotations

import sys
from typing import Any

from acknowledged import say
from delegation_team import Mortal, die

from holdfast import ContractConflictError, SyncClient
from holdfast.backends.bridge.blocking import blocking
from holdfast.backends.url import open_backend
from holdfast.coordination.contract import Contract, contract

NAME, VERSION = "raced", 2


def declare(type_: str) -> Contract[Any]:
    return contract(NAME, VERSION, {"type": "object", "properties": {"text": {"type": type_}}})


def main() -> None:
    url, type_, *kill = sys.argv[1:]
    options: dict[str, Any] = {} if url.startswith("redis") else {"durability": "fast"}
    opened = open_backend(url, **options)
    backend: Any = blocking(opened) if opened.capabilities.awaitable else opened
    client = SyncClient(Mortal(backend, 1 if kill else 0, kill[0] if kill else "", die))
    made = declare(type_)
    [offered] = client.inbox("starter")
    say(ready=True)
    sys.stdin.readline()
    value = {"text": "x" if type_ == "string" else 7}
    try:
        client.handoff(offered.handoff_id, f"reader of {type_}", contract=made, view=lambda _: value)
    except ContractConflictError as error:
        say(conflict=list(error.differences))
    else:
        say(registered=type_)


if __name__ == "__main__":
    main()
