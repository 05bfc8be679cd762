"""Contracts at handoffs: what is handed over, and who can read it."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from typing import Any, Literal

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

from holdfast import SyncClient
from holdfast.coordination.contract import Contract, Contracts, contract
from holdfast.errors import ContractConflictError, ContractError, NewerContractError, UsageError

pytestmark = pytest.mark.every_store


class DraftOne(BaseModel):
    text: str


class Draft(BaseModel):
    title: str
    text: str
    written: datetime
    lang: Literal["en", "de"] = "en"


class Finding(TypedDict):
    severity: str


@dataclasses.dataclass
class Report:
    findings: list[Finding]
    raw: bytes = b""


STATE = {
    "title": "Kelp",
    "text": "It holds fast.",
    "written": datetime(2026, 11, 18, tzinfo=UTC),
    "notes": "private",
}


def declare(version: int, source: Any, name: str = "draft") -> Contract[Any]:
    """Declare a contract as another program would: without regard to those of this process."""
    return Contracts().declare(name, version, source)


def hand_over(client: SyncClient, made: Contract[Any], state: Any = STATE, **options: Any) -> str:
    saved = client.save("writer", session_id="s", execution_state=state, context={"key": "private"})
    return client.handoff(saved, "reviewer", contract=made, **options)


def test_only_the_fields_of_the_contract_are_handed_over(client):
    offered = hand_over(client, declare(1, Draft))
    with client.claim(offered, "reviewer", contract=declare(1, Draft)) as claim:
        assert claim.value == Draft(title="Kelp", text="It holds fast.", written=STATE["written"])
        assert claim.extra == {}
        assert claim.checkpoint.execution_state == {key: STATE[key] for key in ("title", "text", "written")}
        assert claim.checkpoint.agent_context == {}
        assert client.restore(claim.checkpoint.parent_id).execution_state == STATE
    assert client.inbox("reviewer")[0].schema == "draft@1"


def test_a_value_that_is_wrong_in_three_places_is_not_sent(client):
    wrong = {"title": 7, "written": STATE["written"], "lang": "fr"}
    with pytest.raises(ContractError) as raised:
        hand_over(client, declare(1, Draft), wrong)
    assert {one.path for one in raised.value.problems} == {"$", "$.title", "$.lang"}
    assert client.inbox("reviewer") == []
    assert len(client.timeline("s")) == 1


def test_another_schema_under_the_same_version_is_a_conflict(client):
    hand_over(client, declare(1, Draft))
    with pytest.raises(ContractConflictError, match="draft@1"):
        hand_over(client, declare(1, DraftOne))
    with pytest.raises(ContractConflictError, match="draft@1"):
        client.claim(client.inbox("reviewer")[0].handoff_id, "reviewer", contract=declare(1, DraftOne))


def test_an_older_value_is_upgraded(client):
    newer = declare(2, Draft)

    @newer.upgrade(from_version=1)
    def add_title(old: Any) -> Any:
        return {"title": old["text"][:2], "written": STATE["written"], **old}

    offered = hand_over(client, declare(1, DraftOne))
    with client.claim(offered, "reviewer", contract=newer) as claim:
        assert claim.value.title == "It"


@pytest.mark.parametrize("upgraded", [lambda old: old["no"], lambda old: {"title": 1}])
def test_an_upgrade_that_fails_leaves_the_handoff_open(client, upgraded):
    newer = declare(2, Draft)
    newer.upgrade(from_version=1)(upgraded)
    offered = hand_over(client, declare(1, DraftOne))
    with pytest.raises(ContractError):
        client.claim(offered, "reviewer", contract=newer)
    with client.claim(offered, "reviewer", contract=declare(1, DraftOne)) as claim:
        assert claim.value.text == STATE["text"]


def test_a_newer_value_is_read_if_its_schema_proves_that_it_can_be(client):
    offered = hand_over(client, declare(3, Draft))
    with client.claim(offered, "reviewer", contract=declare(1, DraftOne)) as claim:
        assert claim.value == DraftOne(text=STATE["text"])
        assert set(claim.extra) == {"title", "written"}


def test_a_newer_value_that_may_not_be_readable_stays_open(client):
    newer = {"type": "object", "properties": {"text": {"type": ["string", "null"]}}}
    offered = hand_over(client, declare(3, newer), {"text": "readable by chance"})
    with pytest.raises(NewerContractError, match="stays open"):
        client.claim(offered, "reviewer", contract=declare(1, DraftOne))
    with client.claim(offered, "reviewer", contract=declare(3, newer)) as claim:
        assert claim.value == {"text": "readable by chance"}


def test_a_handoff_of_another_contract_or_of_none_is_refused_with_the_reason(client):
    offered = hand_over(client, declare(1, DraftOne))
    with pytest.raises(ContractError, match="carries a draft@1"):
        client.claim(offered, "reviewer", contract=declare(1, DraftOne, "memo"))
    plain = client.handoff(client.save("writer", session_id="t"), "reviewer", schema="a label")
    with pytest.raises(ContractError, match="without a contract"):
        client.claim(plain, "reviewer", contract=declare(1, DraftOne))
    with client.claim(plain, "reviewer") as claim, pytest.raises(UsageError, match="without a contract"):
        _ = claim.value


def test_a_view_makes_the_value_of_another_place(client):
    offered = hand_over(client, declare(1, DraftOne), {"channels": STATE}, view=lambda state: state["channels"])
    with client.claim(offered, "reviewer", contract=declare(1, DraftOne)) as claim:
        assert claim.value.text == STATE["text"]


def test_values_keep_their_types(client):
    made = declare(1, Report, "report")
    offered = hand_over(client, made, {"findings": [{"severity": "low"}], "raw": b"\x00\xff"})
    with client.claim(offered, "reviewer", contract=made) as claim:
        assert claim.value == Report(findings=[{"severity": "low"}], raw=b"\x00\xff")


@pytest.mark.slow
def test_a_long_list_is_not_stored_again(client):
    """A list of 10 MB; what is private stays at the parent."""
    made = declare(1, {"type": "object", "properties": {"messages": {"type": "array"}}}, "talk")
    state = {"messages": [f"{number} {'x' * 1000}" for number in range(10_000)], "notes": "n" * 100}
    client.save("writer", session_id="s", execution_state=state)
    before = client.stats().segment_bytes
    offered = client.handoff("s", "reviewer", contract=made)
    assert client.stats().segment_bytes - before < 2_000
    assert client.restore(offered).execution_state == {"messages": state["messages"]}


def test_a_retry_of_a_handoff_with_a_contract_is_safe(client):
    saved = client.save("writer", session_id="s", execution_state=STATE)
    again = [client.handoff(saved, "reviewer", contract=declare(1, Draft), new_id="0" * 31 + "1") for _ in range(2)]
    assert again[0] == again[1]


def test_a_program_declares_a_version_once():
    contract("once", 1, DraftOne)
    assert contract("once", 1, DraftOne).label == "once@1"
    with pytest.raises(ContractConflictError, match="once@1"):
        contract("once", 1, Draft)


def test_a_cell_that_is_run_again_declares_its_new_class():
    def cell() -> Any:
        class Cell(BaseModel):
            n: int

        return Cell, contract("cell", 2, Cell)

    _, first = cell()
    first.upgrade(from_version=1)(lambda old: {"n": old["m"]})
    newer, second = cell()
    assert type(second.decode({"m": 1}, version=1)[0]) is newer
    assert type(first.decode({"n": 1})[0]) is not newer


def test_a_second_declaration_says_what_differs():
    contract("two", 1, {"type": "object", "properties": {"a": {"type": "string"}}})
    with pytest.raises(ContractConflictError, match=r"\$\.properties\.a\.type: 'string', here 'integer'") as refused:
        contract("two", 1, {"type": "object", "properties": {"a": {"type": "integer"}}})
    assert refused.value.differences == ("$.properties.a.type: 'string', here 'integer'",)
