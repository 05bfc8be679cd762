"""Effects in the ledger rows of the first version with call sites: `python effects_story.py BUNDLE`.

Their identities were made of all arguments, defaults included, even where a key was given.
"""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast import SyncClient

PATH = Path(__file__).parents[1] / "compat" / "0.1" / "effects.holdfast"


def pay(to: str, amount: int = 5, currency: str = "EUR", *, idempotency_key: str) -> str:
    return f"{amount} {currency} to {to}"


def dies(to: str, amount: int = 5, currency: str = "EUR", *, idempotency_key: str) -> str:
    raise KeyboardInterrupt


def write(bundle: Path) -> None:
    client = SyncClient.memory()
    with client.run("s", agent_id="a") as run:
        run.effect("pay", pay, "ann", key="order-1")
        run.effect("pay", pay, "bob")
        run.effect("pay", pay, "bob")
    for options in ({"key": "order-2"}, {}):
        try:
            with client.run("s", agent_id="a") as run:
                run.effect("pay", pay, "bob")
                run.effect("pay", pay, "bob")
                run.effect("put", dies, "eve", kind="idempotent", **options)
        except KeyboardInterrupt:
            continue
    try:
        with client.run("s", agent_id="a") as run:
            run.effect("look up", object)
    except ValueError:
        pass
    client.export(bundle, "s")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
