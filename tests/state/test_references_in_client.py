"""Every operation on a checkpoint takes every kind of reference to it; an exact id costs no search."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stores import Store

from holdfast import CheckpointExpiredError, CheckpointNotFoundError, SyncClient, UsageError
from holdfast.backends.bridge.step import run_inline
from holdfast.model import ids
from holdfast.operations import expire, pin, restore, tag

pytestmark = pytest.mark.every_store


class Calls:
    """Calls the methods of a client of one kind."""

    def __init__(self, store: Store, kind: str) -> None:
        self._store = store
        self._kind = kind

    def __call__(self, method: str, *positional: Any, **keywords: Any) -> Any:
        if self._kind == "sync":
            return getattr(self._store.client(), method)(*positional, **keywords)

        async def call() -> Any:
            async with self._store.async_client() as client:
                return await getattr(client, method)(*positional, **keywords)

        return asyncio.run(call())


@pytest.fixture(params=["sync", "async"])
def call(request: pytest.FixtureRequest, shared_store: Store) -> Calls:
    return Calls(shared_store, request.param)


@pytest.fixture
def line(shared_store: Store) -> list[str]:
    """Session `s` of three checkpoints, the second of them tagged `good`."""
    client = shared_store.client()
    made = [client.save("a", session_id="s", execution_state={"n": n}, step_name=f"step-{n}") for n in range(3)]
    client.tag("good", made[1])
    return made


def references(line: list[str]) -> list[str]:
    """To the second of them."""
    return ["s@-", "good", line[1][-8:], "s@{step-1}", "s@{1}", f"{line[2]}@~1", line[1], line[1].upper()]


def test_of_every_kind_are_read(call: Calls, line: list[str]) -> None:
    for ref in references(line):
        assert call("restore", ref).execution_state == {"n": 1}
        assert call("get", ref).checkpoint_id == line[1]


def test_of_every_kind_are_pinned_and_tagged(call: Calls, line: list[str]) -> None:
    for number, ref in enumerate(references(line)):
        assert call("pin", ref).checkpoint_id == line[1]
        assert call("unpin", ref) is True
        assert call("tag", f"tag-{number}", ref).checkpoint_id == line[1]


def test_of_every_kind_are_handed_on_and_claimed(call: Calls, shared_store: Store, line: list[str]) -> None:
    client = shared_store.client()
    for ref in references(line):
        handed = call("handoff", ref, "b")
        assert client.get(handed).parent_id == line[1]
        client.tag("for-b", handed, force=True)
        with client.claim("for-b", "b") as claim:
            assert claim.handoff_id == handed
        client.rollback("s", to=line[2])

    async def claim_by_tag() -> str:
        async with shared_store.async_client() as awaited, awaited.claim("for-b", "b") as claim:
            return claim.handoff_id

    assert asyncio.run(claim_by_tag()) == handed


def test_of_every_kind_are_expired_and_brought_back(call: Calls, shared_store: Store) -> None:
    client = shared_store.client()
    for number in range(4):
        made = [client.save("a", session_id=f"s{number}", step_name=f"step-{n}") for n in range(3)]
        ref = [f"s{number}@-", made[1][-8:], f"s{number}@{{step-1}}", made[1]][number]
        assert call("expire", ref) is True
        with pytest.raises(CheckpointExpiredError):
            client.restore(made[1])
        assert call("expire", made[1][-8:]) is False
        assert call("unexpire", made[1][-8:]) is True
        assert client.restore(made[1]).step_name == "step-1"


def test_are_parents_and_expected_heads(call: Calls, shared_store: Store, line: list[str]) -> None:
    branch = call("save", "a", session_id="s", parent_id="s@-", expect_head="s@")
    assert shared_store.client().get(branch).parent_id == line[1]


def test_are_taken_by_workspaces(sqlite_store: Store, tmp_path: Path) -> None:
    client = sqlite_store.client()
    (place := tmp_path / "work").mkdir()
    for n in range(3):
        (place / "file").write_text(str(n))
        client.save("a", session_id="s", execution_state={"n": n}, workspace=place)
    workspace = client.workspace(place)
    assert workspace.read("s@-", "file") == b"1"
    workspace.restore("s@-")
    assert (place / "file").read_text() == "1"
    client.tag("good", "s@~2")
    workspace.fork("good", tmp_path / "fork")
    assert (tmp_path / "fork" / "file").read_text() == "0"
    workspace.restore("s@-", scope="both", force=True)
    assert client.latest("s").execution_state == {"n": 1}


def test_a_session_without_a_name_means_where_it_stands(call: Calls, shared_store: Store) -> None:
    client = shared_store.client()
    saved = client.save("a", execution_state={"n": 1})
    session = client.get(saved).session_id
    assert uuid.UUID(session).version == 4
    assert call("restore", session).checkpoint_id == call("get", session).checkpoint_id == saved
    assert call("unpin", call("pin", session).checkpoint_id) is True
    client.pin(saved)
    assert call("unpin", session) is True
    assert call("expire", session) is True


def test_to_nothing_are_told(call: Calls, line: list[str]) -> None:
    for method in ("restore", "get", "pin", "unpin", "expire"):
        with pytest.raises(CheckpointNotFoundError, match="no checkpoint, tag or session 'latest'"):
            call(method, "latest")
        with pytest.raises(UsageError, match="5 is not a checkpoint id"):
            call(method, 5)
    for unknown in (str(uuid.uuid4()), "0199c0de-0000-7000-8000-000000000000"):
        with pytest.raises(CheckpointNotFoundError, match=f"there is no checkpoint {unknown}"):
            call("restore", unknown)
        assert call("expire", unknown) is False


OPERATIONS: dict[str, tuple[Callable[[SyncClient, str], Any], Callable[[Any, bytes], Any]]] = {
    "restore": (lambda client, id_: client.restore(id_), restore.restore),
    "get": (lambda client, id_: client.get(id_), restore.get),
    "pin": (lambda client, id_: client.pin(id_), pin.pin),
    "unpin": (lambda client, id_: client.unpin(id_), pin.unpin),
    "tag": (lambda client, id_: client.tag("new", id_), lambda ctx, id_: tag.tag(ctx, "new", id_)),
    "expire": (lambda client, id_: client.expire(id_), expire.expire),
}


@pytest.mark.parametrize("id_", [None, "0b7a1f5e-52f6-4d0a-9a57-0a1b2c3d4e5f"], ids=["ours", "the-caller's"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_exact_id_costs_no_search(tmp_path: Path, name: str, id_: str | None) -> None:
    by_client, operation = OPERATIONS[name]
    counts = []
    for way in ("client", "operation"):
        (where := tmp_path / way).mkdir()
        store = Store("sqlite", where)
        client, recorder = store.recorded()
        saved = client.save("a", session_id="s", checkpoint_id=id_)
        if name == "unpin":
            client.pin(saved)
        recorder.forget()
        if way == "client":
            by_client(client, saved)
        else:
            run_inline(operation(client._ctx, ids.from_text(saved)))
        counts.append(dict(recorder.calls))
        store.close()
    assert counts[0] == counts[1]
    assert sum(counts[0].values()) >= 1


def test_a_place_near_the_end_of_a_long_line_reads_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes] = []
    with SyncClient.sqlite(tmp_path / "store.db", durability="fast") as client:
        line = [client.save("a", execution_state={}, session_id="s", step_name=f"n{n}") for n in range(300)]
        records = client._ctx.backend.inner.records

        def counted(wanted: Any) -> Any:
            read.extend(wanted)
            return records(wanted)

        monkeypatch.setattr(client._ctx.backend.inner, "records", counted)
        assert [client.resolve(f"s@{place}") for place in ("~3", "{n297}", "")] == [line[-4], line[-3], line[-1]]
        assert len(read) < 20
        assert client.resolve("s@~299") == line[0]
