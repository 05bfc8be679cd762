"""What a rollback or a fork leaves behind is told, acknowledged or undone; nothing of it is forgotten."""

from __future__ import annotations

import asyncio

import pytest
from stores import Recorder, Store

from holdfast import ConflictError, EffectBlockedError, SyncClient, UnacknowledgedError, UsageError
from holdfast.model.handoff import HandoffStatus


class World:
    def __init__(self) -> None:
        self.undone: list[object] = []

    def do(self, what: str) -> str:
        return f"did {what}"

    def undo(self, result: object) -> None:
        self.undone.append(result)


@pytest.fixture
def world() -> World:
    return World()


def worked(client: SyncClient, world: World) -> str:
    """A session with effects before and after the checkpoint that is given."""
    with client.run("s", agent_id="a") as run:
        run.effect("early", world.do, "early")
        before = run.save("before")
        run.effect("pay", world.do, "pay", undo=world.undo)
        run.effect("mail", world.do, "mail", kind="reversible")
        run.effect("look", world.do, "look", kind="read")
    with pytest.raises(KeyboardInterrupt), client.run("s", agent_id="a") as run:
        run.effect("order", dies)
    return before


def dies() -> None:
    raise KeyboardInterrupt


def tools(effects) -> list[str]:
    return [effect.tool for effect in effects]


def test_a_rollback_names_what_stays_done_what_is_in_doubt_and_what_could_be_undone(client: SyncClient, world: World):
    before = worked(client, world)
    report = client.rollback("s", before)
    assert tools(report.effects) == ["mail", "pay"]
    assert tools(report.unknown) == ["order"]
    assert tools(report.undos) == ["pay"]
    assert report.effects[1].result == "did pay"
    # and on the way back there is nothing to leave, but the doubt
    forward = client.rollback("s", report.from_id)
    assert (tools(forward.effects), tools(forward.unknown)) == ([], ["order"])


def test_a_fork_names_what_was_done_elsewhere(client: SyncClient, world: World):
    before = worked(client, world)
    report = client.fork(before, "t")
    assert (tools(report.effects), tools(report.unknown)) == (["mail", "pay"], ["order"])
    here = client.fork(client.latest(session_id="s").checkpoint_id, "u")
    assert (tools(here.effects), tools(here.unknown)) == ([], ["order"])


def test_strict_refuses_until_each_is_acknowledged(client: SyncClient, world: World):
    before = worked(client, world)
    head = client.latest(session_id="s").checkpoint_id
    with pytest.raises(UnacknowledgedError, match="pay") as refused:
        client.rollback("s", before, strict=True)
    report = refused.value.report
    assert client.latest(session_id="s").checkpoint_id == head
    every = [effect.effect_id for effect in (*report.effects, *report.unknown)]
    with pytest.raises(UnacknowledgedError):
        client.rollback("s", before, strict=True, acknowledge=every[1:])
    with pytest.raises(UnacknowledgedError):
        client.fork(before, "t", strict=True)
    assert client.session("t") is None
    done = client.rollback("s", before, strict=True, acknowledge=every, by="ann")
    assert done.to_id == before
    assert client.fork(before, "t", strict=True).session_id == "t"  # what is acknowledged is so for the tree
    for effect in client.effects("s"):
        if effect.effect_id in every:
            assert effect.acknowledged
            assert (effect.history[-1].what, effect.history[-1].by) == ("acknowledged", "ann")


def test_what_is_acknowledged_is_no_suspect_and_stays_blocked_itself(client: SyncClient, world: World):
    before = worked(client, world)
    report = client.rollback("s", before)
    client.rollback("s", report.from_id)
    client.rollback("s", before, acknowledge=[one.effect_id for one in (*report.effects, *report.unknown)])
    with client.run("s", agent_id="a") as run:
        assert run.effect("early", world.do, "early") == "did early"
        assert run.effect("pay", world.do, "pay someone else") == "did pay someone else"
        with pytest.raises(EffectBlockedError):
            run.effect("pay", world.do, "pay")


def test_ids_that_are_not_left_behind_can_not_be_acknowledged(client: SyncClient, world: World):
    before = worked(client, world)
    with pytest.raises(UsageError, match="not among"):
        client.rollback("s", before, acknowledge=[before])
    with pytest.raises(UsageError, match="list of ids"):
        client.rollback("s", before, acknowledge=before)


def test_compensation_on_request(client: SyncClient, world: World):
    before = worked(client, world)
    report = client.rollback("s", before, compensate={"pay": world.undo, "mail": world.undo}, by="ann")
    assert world.undone == ["did mail", "did pay"]
    assert tools(report.compensated) == ["mail", "pay"]
    assert (report.effects, tools(report.unknown)) == ((), ["order"])
    [paid] = [effect for effect in client.effects("s") if effect.tool == "pay"]
    assert [(event.what, event.by) for event in paid.history][-2:] == [("compensating", "ann"), ("compensated", "ann")]
    with client.run("s", agent_id="a") as run:  # undone is not done: it may be carried out again
        run.effect("early", world.do, "early")
        assert run.effect("pay", world.do, "pay") == "did pay"


def test_an_undo_that_fails_leaves_the_session_where_it_was(client: SyncClient, world: World):
    before = worked(client, world)
    head = client.latest(session_id="s").checkpoint_id

    def fails(_: object) -> None:
        raise ConnectionError("the bank is closed")

    with pytest.raises(ConnectionError):
        client.rollback("s", before, compensate={"pay": fails})
    assert client.latest(session_id="s").checkpoint_id == head
    assert tools(client.effects("s", in_doubt=True)) == ["pay", "order"]


def test_a_strict_rollback_that_is_refused_has_undone_nothing(client: SyncClient, world: World):
    before = worked(client, world)
    head = client.latest(session_id="s").checkpoint_id
    undos = {"pay": world.undo}
    with pytest.raises(UnacknowledgedError, match="Nothing was changed") as refused:
        client.rollback("s", before, strict=True, compensate=undos)
    left = [*refused.value.report.effects, *refused.value.report.unknown]
    assert tools(left) == ["mail", "order"]
    with pytest.raises(ConflictError, match="moved"):
        client.rollback("s", before, expect_head=before, compensate=undos)
    with pytest.raises(UsageError, match="not among"):
        client.rollback("s", before, acknowledge=[before], compensate=undos)
    with pytest.raises(UsageError, match="can't be called"):
        client.rollback("s", before, compensate={**undos, "mail": "unsend"})
    assert (world.undone, client.latest(session_id="s").checkpoint_id) == ([], head)
    every = [one.effect_id for one in client.effects("s") if one.tool in ("pay", "mail", "order")]
    report = client.rollback("s", before, strict=True, compensate=undos, acknowledge=every)
    assert (tools(report.compensated), tools(report.effects), world.undone) == (["pay"], ["mail"], ["did pay"])


def test_two_rollbacks_at_once_undo_nothing_twice(store: Store, world: World):
    client, other = store.client(), store.client()
    before = worked(client, world)
    inner = []

    def undo_while_another_rolls_back(result: object) -> None:
        inner.append(other.rollback("s", before, compensate={"pay": world.undo}, by="bob"))
        world.undo(result)

    undos = {"mail": undo_while_another_rolls_back, "pay": world.undo}
    every = [one.effect_id for one in client.effects("s") if one.tool in ("pay", "mail", "order")]
    report = client.rollback("s", before, compensate=undos, acknowledge=every, by="ann")
    assert world.undone == ["did pay", "did mail"]
    assert tools(inner[0].compensated) == ["pay"]
    assert tools(report.compensated) == ["mail", "pay"]  # both are undone, whoever did it
    assert [effect.history[-1].by for effect in report.compensated] == ["ann", "bob"]
    assert client.latest(session_id="s").checkpoint_id == before


def test_what_another_rollback_was_cut_off_in_undoing_is_not_undone_again(store: Store, world: World):
    client, other = store.client(), store.client()
    before = worked(client, world)
    head = client.latest(session_id="s").checkpoint_id

    def fails(result: object) -> None:
        world.undo(result)
        raise ConnectionError("the bank is closed")

    def undo_while_another_is_cut_off(result: object) -> None:
        with pytest.raises(ConnectionError):
            other.rollback("s", before, compensate={"pay": fails})
        world.undo(result)

    with pytest.raises(ConflictError, match="is compensating now"):
        client.rollback("s", before, compensate={"mail": undo_while_another_is_cut_off, "pay": world.undo})
    assert world.undone == ["did pay", "did mail"]
    assert client.latest(session_id="s").checkpoint_id == head
    assert tools(client.effects("s", in_doubt=True)) == ["pay", "order"]


def test_compensation_of_an_awaited_client(store: Store, world: World):
    async def program() -> None:
        async def undo(result: object) -> None:
            await asyncio.sleep(0)
            world.undone.append(result)

        async with store.async_client() as client:
            async with client.run("s") as run:
                before = await run.save("before")
                await run.effect("pay", world.do, "pay")
            await client.rollback("s", before, compensate={"pay": undo})

    asyncio.run(program())
    assert world.undone == ["did pay"]


def test_agents_that_went_on_from_a_later_handoff_are_named(client: SyncClient):
    first = client.save("a", session_id="s", execution_state={"n": 1})
    handed = client.handoff(client.save("a", session_id="s"), "b")
    waiting = client.rollback("s", first)
    assert waiting.consumers == ()  # nobody has it yet
    client.rollback("s", handed)
    with client.claim(handed, "b") as claim:
        client.save("b", lease=claim.lease, execution_state={"n": 2})
    with pytest.raises(UnacknowledgedError, match=r"agent .b. has gone on from handoff"):
        client.rollback("s", first, strict=True)
    report = client.rollback("s", first, strict=True, acknowledge=[handed])
    [consumer] = report.consumers
    assert (consumer.target_agent_id, consumer.status) == ("b", HandoffStatus.TAKEN_UP)
    assert client.fork(first, "t").consumers[0].handoff_id == handed


def test_where_nothing_was_done_nothing_more_is_read(memory_store: Store):
    client, recorder = memory_store.recorded()
    assert isinstance(recorder, Recorder)
    saved = [client.save("a", session_id="s", execution_state={"n": n}) for n in range(50)]
    recorder.forget()
    client.rollback("s", saved[0])
    assert recorder.calls["session_records"] == 0
    assert recorder.calls["records"] == 1


def test_a_long_way_back_is_read_in_pages(memory_store: Store, world: World):
    client, recorder = memory_store.recorded()
    with client.run("s", agent_id="a") as run:
        first = run.save("first")
        run.effect("pay", world.do, "pay")
        for n in range(600):
            run.state = n
            run.save()
    recorder.forget()
    assert tools(client.rollback("s", first).effects) == ["pay"]
    assert recorder.calls["records"] < 10
