"""A store with data for every screen of the page: graph, run, files, forks, approvals, damage."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from itertools import islice
from operator import add
from pathlib import Path
from typing import Annotated, Any, TypedDict

from holdfast import SyncClient

GRAPH, RUN, FILES, SHOP, BRANCH, DAMAGED = "support-7", "order-42", "refactor-auth", "invoices", "invoices-retry", "old"


@dataclass(frozen=True)
class WebStory:
    """Where the store is, and the checkpoints that tests name."""

    path: Path
    directory: Path
    ids: dict[str, str]


class Chat(TypedDict):
    messages: Annotated[list[dict[str, Any]], add]


def build_story(where: Path) -> WebStory:
    directory = where / "project"
    directory.mkdir(parents=True)
    path = where / "store.db"
    ids: dict[str, str] = {}
    with SyncClient.sqlite(path, durability="fast") as client:
        _save_damaged(client, ids)
        _talk(client)
        _save_files(client, directory, ids)
        _save_shop(client, ids)
        _run(client)
        _publish(client)
    flip_a_bit(path, ids["damaged"])
    return WebStory(path, directory, ids)


def _talk(client: SyncClient) -> None:
    """A graph of LangGraph with two nodes."""
    from langgraph.graph import START, StateGraph

    from holdfast.langgraph import HoldfastSaver

    def look_up(state: Chat) -> Any:
        call = {"id": "call_1", "name": "find_order", "args": {"order": 4821}, "type": "tool_call"}
        return {"messages": [{"role": "assistant", "content": "I look it up.", "tool_calls": [call]}]}

    def answer(state: Chat) -> Any:
        return {"messages": [{"role": "assistant", "content": "Your parcel left Oslo this morning."}]}

    builder = StateGraph(Chat)
    builder.add_node("look_up", look_up)
    builder.add_node("answer", answer)
    builder.add_edge(START, "look_up")
    builder.add_edge("look_up", "answer")
    graph = builder.compile(checkpointer=HoldfastSaver(client))
    graph.invoke(
        {"messages": [{"role": "user", "content": "Where is my parcel?"}]}, {"configurable": {"thread_id": GRAPH}}
    )


def _save_files(client: SyncClient, directory: Path, ids: dict[str, str]) -> None:
    """Points of a coding agent, with the files of its directory."""
    workspace = client.workspace(directory)
    source = directory / "src"
    source.mkdir()
    (source / "auth.py").write_text("def login(user):\n    return check(user)\n")
    (directory / "README.md").write_text("# Shop\n")
    (directory / "logo.png").write_bytes(bytes(range(256)) * 8)
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Rename check to verify, and add a test."}]
    points = (
        ("prompt", directory.exists),
        ("Edit", lambda: (source / "auth.py").write_text("def login(user):\n    return verify(user)\n")),
        ("Write", lambda: (source / "test_auth.py").write_text("def test_login():\n    assert login('ann')\n")),
        ("Bash", (directory / "README.md").unlink),
    )
    for index, (name, change) in enumerate(points):
        change()
        messages.append({"role": "assistant", "content": f"{name}: step {index} is done."})
        ids[f"files {index}"] = client.save(
            agent_id="coder", session_id=FILES, step_name=name, execution_state={"messages": list(messages)},
            workspace=workspace, usage={"input_tokens": 900 + 40 * index, "output_tokens": 60},
        )  # fmt: skip


def _save_shop(client: SyncClient, ids: dict[str, str]) -> None:
    """A long session with two forks, a tag, a pin, a handoff and values of every kind."""
    state: dict[str, Any] = {
        "messages": [], "plan": {"look up": "pending", "pay": "pending"}, "total": Decimal("1250.50"),
        "due": datetime(2026, 12, 1, tzinfo=UTC), "scan": bytes(5000), "notes": "A long note. " * 900,
        "lines": [{"line": number, "amount": number * 7} for number in range(300)],
    }  # fmt: skip
    names = ("plan", "ask_model", "look_up", "ask_model", "check", "ask_model", "propose", "review")
    for index in range(24):
        name = names[index % len(names)]
        state["messages"].append({"role": ("user", "assistant")[index % 2], "content": f"{name}: line {index}"})
        state["plan"]["look up"] = "done" if index > 5 else "pending"
        usage = {"input_tokens": 400 + 31 * index, "output_tokens": 80 + index}
        ids[f"shop {index}"] = client.save(
            agent_id="bookkeeper", session_id=SHOP, step_name=name, execution_state=state,
            context={"invoice_id": "INV-4821"}, app_version="1.4", usage=usage,
        )  # fmt: skip
    client.fork(ids["shop 11"], BRANCH, set={"plan.pay": "skipped"})
    for index in range(5):
        branch = client.restore(BRANCH)
        content = f"branch: line {index}"
        branch.execution_state["messages"].append({"role": "assistant", "content": content})
        ids[f"branch {index}"] = client.save(
            agent_id="bookkeeper", session_id=BRANCH, step_name="retry", execution_state=branch.execution_state
        )
    client.fork(ids["shop 17"], "invoices-cheap")
    client.tag("approved-draft", ids["shop 8"])
    client.pin(ids["shop 3"], "before the audit")
    ids["handoff"] = client.handoff(ids["shop 23"], target_agent_id="approver")


def _run(client: SyncClient) -> None:
    """A run with steps, tasks, an effect that is done, one of unknown outcome, and two approvals."""

    def pay(to: str, amount: int, *, idempotency_key: str) -> dict[str, Any]:
        return {"paid": amount, "to": to}

    def fail(to: str, *, idempotency_key: str) -> None:
        raise KeyboardInterrupt

    try:
        with client.run(RUN, agent_id="buyer") as run:
            for name in ("plan", "compare offers", "choose"):
                run.step(name, lambda name=name: f"{name} is done")
                run.state["last"] = name
                run.save(name)
            for task in run.tasks("parts", ["pump", "valve"]):
                run.step(f"order {task.id}", lambda: 1)
            run.effect("bank.pay", pay, to="bob", amount=500, key="invoice-4821")
            run.save("paid")
            run.effect("mail.send", fail, to="ann", key="mail-1")
    except KeyboardInterrupt:
        pass
    client.request_approval(
        RUN,
        "bank.pay",
        {"to": "carol", "amount": 900, "urgent": False},
        summary="Pay the freight.",
        approvers="finance",
    )
    client.request_approval(RUN, "deploy", {"service": "web", "plan": {"replicas": 3}}, kind="reversible")


def _publish(client: SyncClient) -> None:
    """Topics with a group that is done, one that is behind, and one that gave a message up."""
    for number in range(12):
        client.publish(
            "drafts", {"chapter": number, "text": "All about roots. " * (number * 20), "authors": ["ann", {"id": 7}]},
            key=f"book-{number % 3}", agent_id="writer",
        )  # fmt: skip
    client.publish("orders/new", {"id": 42, "paid": Decimal("9.50")})
    client.publish("scores", 7)
    for group, most in (("archive", 12), ("reviewers", 4)):
        with client.subscribe("drafts", group, timeout=0) as messages:
            for message in islice(messages, most):
                message.ack()
    with client.subscribe("drafts", "press", timeout=0) as messages:
        next(iter(messages)).reject("the press prints no chapter 0")


def _save_damaged(client: SyncClient, ids: dict[str, str]) -> None:
    for index in range(3):
        made = client.save(
            agent_id="bookkeeper", session_id=DAMAGED, step_name=f"s{index}", execution_state={"n": index}
        )
        ids[("first", "damaged", "last")[index]] = made


def flip_a_bit(path: Path, checkpoint_id: str) -> None:
    """Flip a bit in a stored record."""
    id_ = bytes.fromhex(checkpoint_id.replace("-", ""))
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        [(data,)] = connection.execute("SELECT data FROM record WHERE id = ?", (id_,)).fetchall()
        broken = bytearray(data)
        broken[len(broken) // 2] ^= 1
        connection.execute("UPDATE record SET data = ? WHERE id = ?", (bytes(broken), id_))
    finally:
        connection.close()
