"""A store with every kind of content, for the tests of all commands."""

from pathlib import Path
from typing import Any

import pytest

from holdfast import SyncClient
from holdfast.coordination.contract import Contracts

PROGRAM = """
import holdfast


def main(run):
    run.step("one", len, "x")


holdfast.runnable("every.job")(main)
"""


def dies(**_: Any) -> None:
    raise KeyboardInterrupt


def make_world(root: Path, client: SyncClient) -> dict[str, str]:
    """Fills the store, and the directory around it; what commands are given, by name."""
    (root / "project").mkdir()
    (root / "project" / "a.txt").write_text("one\n")
    (root / "every_command_program.py").write_text(PROGRAM)
    (root / "state.json").write_text('{"messages": ["one", "two"]}')
    first = client.save("worker", session_id="main", execution_state={"messages": ["one"]}, step_name="read")
    second = client.save("worker", session_id="main", execution_state={"messages": ["one", "two"]})
    handed = client.handoff(second, target_agent_id="approver")
    client.fork(first, session_id="what-if")
    client.tag("release", first)
    with client.run("steps", agent_id="a") as run:
        run.step("one", len, "x")
    for job in ("job", "void"):
        client.start("every.job", session_id=job)
    client.cancel("void", by="ann")
    approval, decided = (client.request_approval("main", "pay", {"to": who}) for who in ("ann", "bob"))
    client.decide(decided.approval_id, "approve", by="eve")
    with pytest.raises(KeyboardInterrupt), client.run("orders", agent_id="buyer") as run:
        run.effect("pay", lambda amount: "r-1", amount=5)
        run.effect("pay", dies, amount=7)
    in_doubt, settled = client.effects("orders")
    draft = Contracts().declare("draft", 1, {"type": "object", "properties": {"text": {"type": "string"}}})
    written = client.save("a", session_id="taken", execution_state={"text": "once"})
    taken = client.handoff(written, target_agent_id="approver", contract=draft)
    client.claim(taken, "approver", seconds=3600)  # this process lives, so it holds
    held = client.save("a", session_id="held")
    client.lease("held", seconds=3600)
    snapshot = client.workspace(root / "project").snapshot("before").checkpoint_id
    client.export(root / "bundle.hf", session_id="main")
    message, dead = client.publish("news", {"n": 1}), client.publish("news", {"n": 2})
    with client.subscribe("news", "mailer", timeout=0) as messages:
        next(messages).ack()
        next(messages).reject("of another order")
    client.pin(first)
    undone, tagged = (one.short_id for one in client.operations(limit=2))
    client.undo()
    return {
        "first": first, "second": second, "handed": handed, "approval": approval.short_id, "decided": decided.short_id,
        "effect": in_doubt.short_id, "settled": settled.short_id, "held": held, "taken": taken, "snapshot": snapshot,
        "undone": undone, "tagged": tagged, "message": message, "dead": dead,
    }  # fmt: skip
