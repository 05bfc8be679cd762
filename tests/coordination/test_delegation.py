"""delegate, claim, complete, join: each item once, typed both ways, with the same answer after a resume."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from pydantic import BaseModel

from holdfast import (
    ConflictError,
    ContractError,
    CorruptError,
    HandoffStatus,
    RunCancelledError,
    SyncClient,
    UsageError,
    contract,
)
from holdfast.backends.bridge.step import run_inline
from holdfast.backends.port import Commit
from holdfast.coordination.contract import Contracts
from holdfast.format.rows import inbox
from holdfast.model import ids

pytestmark = pytest.mark.every_store


class Question(BaseModel):
    text: str


class Finding(BaseModel):
    answer: str
    sure: bool = True


question = contract("test-question", 1, Question)
finding = contract("test-finding", 1, Finding)
TEXTS = ["a", "b", "c", "d", "e"]


def answer(client: SyncClient, handoff_id: str, result: Any = None, *, fails: str | None = None) -> None:
    with client.claim(handoff_id, "researcher") as claim:
        claim.complete(result) if fails is None else claim.fail(ValueError(fails))


def ask(run: Any, texts: list[str] = TEXTS) -> Any:
    return run.delegate("researcher", [Question(text=one) for one in texts], contract=question, returns=finding)


def test_each_item_is_a_session_and_an_offer_of_its_own(store):
    client = store.client()
    with client.run("s", "boss") as run:
        run.save()
        asked = ask(run)
    offers = store.client().inbox("researcher")
    assert [one.handoff_id for one in offers] == [one.handoff_id for one in asked]
    assert len({one.checkpoint.tree_id for one in offers}) == len({one.session_id for one in asked}) == 5
    assert {one.delegated_by for one in offers} == {"s"}
    assert {one.schema for one in offers} == {"test-question@1"}
    with client.claim(offers[2].handoff_id, "researcher", contract=question) as claim:
        assert claim.value == Question(text="c")


def test_a_resume_asks_again_and_creates_nothing_twice(store):
    asked = []
    for _ in range(3):
        with store.client().run("s", "boss", autosave=None) as run:
            asked.append(ask(run))
            run._core.journal.entries.clear()  # its record is lost, as by a crash before it was saved
    assert asked[0] == asked[1] == asked[2]
    assert len(store.client().inbox("researcher")) == 5


def test_equal_items_are_told_apart(client):
    with client.run("s", "boss") as run:
        asked = run.delegate("w", ["same", "same", "other"])
        more = run.delegate("w", ["same"])
    assert len({one.session_id for one in (*asked, *more)}) == 4


def test_nothing_is_written_if_one_item_is_wrong(store):
    client = store.client()
    with client.run("s", "boss") as run:
        with pytest.raises(ContractError, match="item 1") as raised:
            run.delegate("researcher", [{"text": "fine"}, {"text": 7, "more": 1}], contract=question)
        assert {one.path for one in raised.value.problems} == {"$", "$.text"} or raised.value.problems
    assert client.inbox("researcher") == []
    assert len(client.sessions()) == 1
    assert client.contracts() == []


def test_a_result_that_breaks_its_contract_is_refused_and_the_work_stays_open(client):
    with client.run("s", "boss") as run:
        [asked] = ask(run, ["a"])
    with pytest.raises(ContractError), client.claim(asked.handoff_id, "researcher") as claim:
        claim.complete({"answer": 7})
    assert [one.status for one in client.inbox("researcher")] == [HandoffStatus.OPEN]
    other = Contracts().declare("other", 1, Finding)
    with pytest.raises(ContractError), client.claim(asked.handoff_id, "researcher", returns=other) as claim:
        claim.complete(Finding(answer="x"))


def test_a_worker_that_does_not_declare_the_contract_is_checked_by_the_stored_one(client):
    made = Contracts().declare("undeclared", 1, Finding)
    with client.run("s", "boss") as run:
        [asked] = run.delegate("researcher", [{"text": "a"}], returns=made)
        with pytest.raises(ContractError), client.claim(asked.handoff_id, "researcher") as claim:
            claim.complete({"answer": 7})
        answer(client, asked.handoff_id, {"answer": "x"})
        assert run.join([asked]).values == [Finding(answer="x")]


def test_join_gives_typed_results_in_the_order_of_the_items(client):
    with client.run("s", "boss") as run:
        asked = ask(run)
        for one in reversed(asked):
            answer(client, one.handoff_id, Finding(answer=one.item.text.upper()))
        got = run.join(asked)
    assert got.values == [Finding(answer=one) for one in "ABCDE"]
    assert (got.failed, got.missing, got.late) == ((), (), ())
    assert [one.status for one in client.inbox("researcher", include_claimed=True)] == [HandoffStatus.ANSWERED] * 5


def join_three_of_five(client: SyncClient, **options: Any) -> Any:
    with client.run("s", "boss", **options) as run:
        asked = ask(run)
        if not run.resumed:
            for one in asked[:3]:
                answer(client, one.handoff_id, Finding(answer=one.item.text))
            answer(client, asked[3].handoff_id, fails="no such book")
        return run.join(asked, need=3, timeout=30)


def test_a_resumed_join_gives_the_same_answer_and_lists_what_came_late(store):
    client = store.client()
    first = join_three_of_five(client)
    assert first.values == [Finding(answer=one) for one in "abc"]
    [failed] = first.failed
    assert (failed.status, failed.error_type, failed.message) == ("failed", "ValueError", "no such book")
    [missing] = first.missing
    assert (missing.item, first.late) == (Question(text="e"), ())
    answer(client, missing.handoff_id, Finding(answer="late"))
    for _ in range(2):
        again = join_three_of_five(store.client())
        assert (again.results, again.failed, again.missing) == (first.results, first.failed, first.missing)
        assert [one.value for one in again.late] == [Finding(answer="late")]


def test_control_a_join_that_is_not_recorded_gives_another_answer(store):
    """Were the answers read again, the late one would be among them."""
    client = store.client()
    with client.run("s", "boss") as run:
        asked = ask(run)
        for one in asked[:3]:
            answer(client, one.handoff_id, Finding(answer=one.item.text))
        first = run.join(asked, need=3)
        answer(client, asked[4].handoff_id, Finding(answer="late"))
        unrecorded = run.join(asked, need=3, key="not the recorded one")
    assert len(first.values) == 3
    assert len(unrecorded.values) == 4


def test_a_join_ends_at_its_timeout(client):
    with client.run("s", "boss") as run:
        asked = ask(run, ["a", "b"])
        answer(client, asked[0].handoff_id, Finding(answer="a"))
        began = time.monotonic()
        got = run.join(asked, timeout=0.2)
        assert time.monotonic() - began < 20
    assert (len(got.results), got.missing) == (1, (asked[1],))


def test_a_failure_cancels_the_rest_once_the_need_is_out_of_reach(client):
    with client.run("s", "boss") as run:
        asked = ask(run, ["a", "b", "c"])
        answer(client, asked[0].handoff_id, Finding(answer="a"))
        answer(client, asked[1].handoff_id, fails="no")
        got = run.join(asked, on_failure="cancel")
    assert [one.status for one in got.failed] == ["failed", "cancelled"]
    assert got.missing == ()
    assert client.inbox("researcher") == []
    with pytest.raises(RunCancelledError):
        client.claim(asked[2].handoff_id, "researcher")


def test_a_failure_cancels_nothing_while_enough_can_still_answer(client):
    with client.run("s", "boss") as run:
        asked = ask(run, ["a", "b", "c"])
        answer(client, asked[1].handoff_id, fails="no")
        answer(client, asked[0].handoff_id, Finding(answer="a"))
        got = run.join(asked, need=1, on_failure="cancel")
    assert (len(got.results), len(got.failed), len(got.missing)) == (1, 1, 1)
    assert len(client.inbox("researcher")) == 1


def test_another_worker_goes_on_where_the_last_one_stopped(store):
    client, calls = store.client(), []
    with client.run("s", "boss") as run:
        [asked] = run.delegate("w", ["x"])
    with (
        pytest.raises(RuntimeError),
        client.claim(asked.handoff_id, "w") as claim,
        client.run(claim.session_id, "w", lease=claim.lease) as work,
    ):
        work.step("first", calls.append, 1)
        raise RuntimeError("out of memory")
    second = store.client()
    assert [one.status for one in second.inbox("w")] == [HandoffStatus.OPEN]
    with second.claim(asked.handoff_id, "w") as claim:
        with second.run(claim.session_id, "w", lease=claim.lease) as work:
            work.step("first", calls.append, 1)
            work.step("second", calls.append, 2)
        claim.complete("done")
    assert calls == [1, 2]
    with pytest.raises(ConflictError, match="answered"):
        second.claim(asked.handoff_id, "w")


def test_completing_again_is_a_no_op(client):
    with client.run("s", "boss") as run:
        [asked] = run.delegate("w", ["x"])
    with client.claim(asked.handoff_id, "w") as claim:
        first = claim.complete({"n": 1})
    assert claim.complete({"n": 1}) == first
    assert client.latest(asked.session_id).checkpoint_id == first


def test_an_answer_that_has_expired_is_a_failure(client):
    with client.run("s", "boss") as run:
        [asked] = run.delegate("w", ["x"])
        with client.claim(asked.handoff_id, "w") as claim:
            client.expire(claim.complete(1))
        [failed] = run.join([asked]).failed
    assert failed.error_type == "CheckpointExpiredError"


def test_an_answer_that_is_none_is_reported_as_damage(quick):
    with quick.run("s", "boss") as run:
        [asked] = run.delegate("w", ["x"])
        forged = quick.save("w", session_id=asked.session_id, execution_state={})
        offer = ids.from_text(asked.handoff_id)
        writes = inbox.end("w", offer, offer, inbox.FollowUp(ids.from_text(forged), 1, b"w", False))
        run_inline(quick._ctx.backend.commit(Commit(tree=offer, rows=writes)))
        with pytest.raises(CorruptError, match="said to be the answer"):
            run.join([asked])


def test_only_delegated_work_is_answered_and_it_is_not_handed_on(client):
    offered = client.handoff(client.save("a", session_id="h", execution_state={}), "w")
    with client.claim(offered, "w") as claim, pytest.raises(UsageError, match="handed over"):
        claim.complete(1)
    with client.run("s", "boss") as run:
        [asked] = run.delegate("w", ["x"])
    with client.claim(asked.handoff_id, "w") as claim, pytest.raises(UsageError, match="delegated by 's'"):
        client.handoff(asked.handoff_id, "other", lease=claim.lease)


def test_a_worker_delegates_parts_of_its_work(client):
    with client.run("s", "boss") as run:
        [asked] = run.delegate("lead", ["book"])
        with client.claim(asked.handoff_id, "lead") as claim:
            with client.run(claim.session_id, "lead", lease=claim.lease) as work:
                parts = work.delegate("w", [1, 2])
                for number, one in enumerate(parts):
                    with client.claim(one.handoff_id, "w") as part:
                        part.complete(number)
                result = work.join(parts).values
            claim.complete(result)
        assert run.join([asked]).values == [[0, 1]]
    team = client.team("s")
    assert [(one.depth, one.status) for one in team.members] == [
        (0, "idle"), (1, "answered"), (2, "answered"), (2, "answered")
    ]  # fmt: skip
    assert client.team(parts[0].session_id).origins == (asked.session_id, "s")


def test_wrong_arguments_are_refused(quick):
    with quick.run("s", "boss") as run:
        for act in (
            lambda: run.delegate("w", "abc"),
            lambda: run.delegate("w", [1], contract=Question),
            lambda: run.join(["x"]),
            lambda: run.join([], need=1),
            lambda: run.join([], on_failure="ignore"),
            lambda: run.join([], timeout=-1),
        ):
            with pytest.raises(UsageError):
                act()
        assert run.join(run.delegate("w", [])).results == ()
    with pytest.raises(UsageError), quick.lease("s") as lease:
        quick.run("other", "boss", lease=lease)


def test_awaited_runs_delegate_and_join(store):
    async def main() -> list[Any]:
        async with store.async_client() as client, client.run("s", "boss") as run:
            asked = await run.delegate("w", [1, 2, 3])

            async def serve() -> None:
                for one in asked:
                    async with client.claim(one.handoff_id, "w") as claim:
                        item = claim.checkpoint.execution_state
                        async with client.run(claim.session_id, "w", lease=claim.lease) as work:
                            value = await work.step("double", lambda item=item: item * 2)
                        await claim.complete(value)

            got, _ = await asyncio.gather(run.join(asked, timeout=60), serve())
            return got.values

    assert asyncio.run(main()) == [2, 4, 6]


# -- who waits for whom ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_wait_that_no_worker_serves_is_shown(store):
    boss, person = store.client(), store.client()
    with boss.run("s", "boss") as run:
        asked = run.delegate("w", [1, 2])
        thread = threading.Thread(target=lambda: run.join(asked, timeout=60))
        thread.start()
        team = wait_for(lambda: (found := person.team("s")).waits and found)
        [wait] = team.waits
        assert (wait.session_id, wait.kind, set(wait.targets)) == ("s", "join", {one.session_id for one in asked})
        assert set(wait.unserved) == set(wait.targets)
        assert [one.status for one in team.members] == ["running", "offered", "offered"]
        claim = person.claim(asked[0].handoff_id, "w")
        assert person.team("s").unserved[0].unserved == (asked[1].session_id,)
        assert person.team("s").members[1].holder == claim.lease.holder
        claim.complete(1)
        answer_as(person, asked[1].handoff_id)
        thread.join()
    assert person.team("s").waits == ()


def answer_as(client: SyncClient, handoff_id: str) -> None:
    with client.claim(handoff_id, "w") as claim:
        claim.complete(2)


def wait_for(look: Any) -> Any:
    deadline = time.monotonic() + 30
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def test_a_team_has_the_groups_of_its_topics(store):
    client = store.client()
    client.publish("questions", "why?")
    client.publish("elsewhere", 1)
    next(client.subscribe("elsewhere", "others", timeout=0)).ack()
    with client.run("s", "boss") as run:
        run.publish("drafts", 1)
        run.publish("drafts", 2)
        [asked] = run.delegate("w", [1])
    with client.claim(asked.handoff_id, "w") as claim, client.run(claim.session_id, "w", lease=claim.lease) as work:
        for _ in work.receive("questions", "workers", timeout=0):
            assert shown_groups(client) == [("questions", "workers", 0, 1, 0)]  # in flight
    client.publish("questions", "why not?")
    next(client.subscribe("drafts", "mailers", timeout=0)).reject("no")
    next(client.subscribe("drafts", "reviewers", timeout=0)).release()
    assert shown_groups(client) == [
        ("drafts", "mailers", 1, 0, 1),
        ("drafts", "reviewers", 2, 0, 0),
        ("questions", "workers", 1, 0, 0),
    ]
    first = next(iter(client.messages("drafts"))).published_at
    assert client.team("s").groups[1].oldest == first


def shown_groups(client):
    found = client.team("s").groups
    return [(one.topic, one.group, one.waiting, one.in_flight, one.dead) for one in found]


@pytest.mark.slow
def test_a_team_has_the_group_of_a_topic_that_it_waits_for(store):
    client, person = store.client(), store.client()
    with client.run("s", "a") as run:
        thread = threading.Thread(target=lambda: next(run.receive("t", "g", timeout=120)))
        thread.start()
        [group] = wait_for(lambda: person.team("s").groups)
        assert (group.topic, group.group, group.waiting) == ("t", "g", 0)
        person.publish("t", "the end of the wait")
        thread.join()


@pytest.mark.slow
def test_a_wait_for_an_approval_is_shown_and_is_a_persons_to_end(quick):
    quick.save("a", session_id="s", execution_state={})
    asked = quick.request_approval("s", "pay", {"amount": 1})
    thread = threading.Thread(target=lambda: quick.wait_for_approval(asked.approval_id))
    thread.start()
    [wait] = wait_for(lambda: quick.team("s").waits)
    assert (wait.kind, wait.targets, wait.unserved) == ("approval", (asked.approval_id,), ())
    quick.decide(asked.approval_id, "approve", by="ana")
    thread.join()
    assert quick.team("s").waits == ()


def test_a_join_that_was_cut_off_goes_on_with_the_rest_of_its_time(store, clock):
    client, person = store.client(), store.client()
    clock.rules(client)
    with client.run("s", "boss") as run:
        asked = run.delegate("w", [1])
        backend = run._core.ctx.backend
        asleep = backend.wait_for_commit

        async def wait_for_commit(_seen: int, _seconds: float) -> bool:
            clock.forward(2)
            if person.team("s").waits:
                raise KeyboardInterrupt
            return True

        backend.wait_for_commit = wait_for_commit
        with pytest.raises(KeyboardInterrupt):
            run.join(asked, timeout=600)
        backend.wait_for_commit = asleep
    clock.forward(700)
    with client.run("s", "boss") as run:
        got = run.join(run.delegate("w", [1]), timeout=600)
    assert got.missing == asked
