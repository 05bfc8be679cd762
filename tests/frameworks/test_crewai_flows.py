"""CrewAI's flows, and its own persistence and feedback."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from framework_environments import require
from survives import survives

require("crewai")

from crewai.flow.async_feedback import HumanFeedbackPending
from crewai.flow.flow import Flow, and_, listen, start
from crewai.flow.human_feedback import human_feedback
from crewai.flow.persistence import persist
from crewai_model import FunctionModel  # before CrewAI: no telemetry
from crewai_turns import Count, Interrupted, echo, make_agent, make_crew, make_flow
from stored_secrets import assert_secret_is_not_stored

from holdfast import SyncClient
from holdfast.adapters.base.call_order import CallOrder
from holdfast.crewai import HoldfastPersistence, resumable
from holdfast.errors import UsageError


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


# -- flows -------------------------------------------------------------------------------------------------------------


class Held:
    """Keeps what is within until it is released."""

    def __init__(self) -> None:
        self.is_entered, self.is_released = threading.Event(), threading.Event()

    def wait(self) -> None:
        self.is_entered.set()
        assert self.is_released.wait(60)


def test_sessions_share_a_flow_one_after_the_other_and_share_no_state(url):
    held = Held()
    tokens: list[Any] = []

    class Remember(Flow):
        @start()
        def remember(self) -> list[str]:
            held.wait()
            self.state.setdefault("told", []).append(self.state["text"])
            tokens.append(self.state.get("api_token"))
            self.state["api_token"] = f"of {self.state['text']}"  # not stored
            return list(self.state["told"])

    flow = Remember(suppress_flow_events=True)

    def say(session: str, text: str) -> Any:
        return resumable(flow, session_id=session, store=url).kickoff({"text": text})

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(say, "ann", "a")
        assert held.is_entered.wait(60)
        with pytest.raises(UsageError, match="in the middle of another turn"):
            say("bob", "x")
        held.is_released.set()
        assert first.result() == ["a"]
    assert say("ann", "b") == ["a", "b"]
    assert [say("bob", text) for text in "xy"] == [["x"], ["x", "y"]]
    assert say("ann", "c") == ["a", "b", "c"]
    assert tokens == [None] * 5


def test_a_crew_takes_one_turn_at_a_time(url):
    held = Held()

    def answer(_: Any) -> str:
        held.wait()
        return "done"

    crew = make_crew(make_agent(FunctionModel.make(answer)))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(resumable(crew, session_id="ann", store=url).kickoff, {"what": "a"})
        assert held.is_entered.wait(60)
        with pytest.raises(UsageError, match="in the middle of another turn"):
            resumable(crew, session_id="bob", store=url).kickoff({"what": "x"})
        held.is_released.set()
        assert first.result().raw == "done"
    assert resumable(crew, session_id="bob", store=url).kickoff({"what": "x"}).raw == "done"


@survives("finished methods of a flow", "not run again; results and state come back")
def test_a_flow_goes_on_at_the_method_that_was_cut_off(url):
    ran: list[str] = []
    with pytest.raises(Interrupted):
        resumable(make_flow(ran, cut_off_in="second"), session_id="s", store=url).kickoff()
    flow = make_flow(ran)
    assert resumable(flow, session_id="s", store=url).kickoff() == "even: [0]"
    assert ran == ["first", "second", "second"]
    assert flow.state.secret.get_secret_value() == "a secret of the program"
    # Another kickoff begins with the state that this one left, in another process, too.
    later = make_flow(ran)
    assert asyncio.run(resumable(later, session_id="s", store=url).kickoff_async(turn="2")) == "odd: [0, 1]"
    assert later.state.id == flow.state.id
    finished = make_flow(ran)
    assert resumable(finished, session_id="s", store=url).kickoff(turn="2") == "odd: [0, 1]"
    assert finished.state.numbers == [0, 1]
    assert len(ran) == 5
    assert_secret_is_not_stored(url, "a secret of the program")


@survives("methods in parallel", "their results and changes come in the order of the first life")
@pytest.mark.parametrize("is_async", [False, True])
def test_methods_in_parallel_end_in_the_same_order_in_the_next_life(url, is_async, monkeypatch):
    """`and_` gives its listener the result of the last one; each of them has added to the state."""
    is_away = True
    heard: list[Any] = []
    ended = {name: threading.Event() for name in ("quick", "slow", "slower", "conclude")}
    hold = CallOrder.hold

    @asynccontextmanager
    async def note_end(order: CallOrder, name: str, *more: Any) -> AsyncIterator[None]:
        async with hold(order, name, *more):
            yield
        ended[name].set()

    monkeypatch.setattr(CallOrder, "hold", note_end)

    class Office(Flow):
        def note(self, name: str) -> str:
            self.state["done"] = [*self.state.get("done", ()), name]
            return name

        @start()
        def slow(self) -> str:
            assert ended["quick"].wait(60)
            return self.note("slow")

        @start()
        async def slower(self) -> str:
            while not ended["slow"].is_set():  # noqa: ASYNC110 - a thread may set it
                await asyncio.sleep(0.01)
            return self.note("slower")

        @start()
        def quick(self) -> str:
            return self.note("quick")

        @listen(and_(slower, slow, quick))
        def conclude(self, last: str) -> list[str]:
            heard.append(last)
            if is_away:
                raise RuntimeError("the model is away")
            return list(self.state["done"])

    def kickoff() -> Any:
        flow = resumable(Office(suppress_flow_events=True), session_id="s", store=url)
        return asyncio.run(flow.kickoff_async(turn="1")) if is_async else flow.kickoff(turn="1")

    with pytest.raises(RuntimeError, match="away"):
        kickoff()
    is_away = False
    assert kickoff() == ["quick", "slow", "slower"]
    assert heard == ["slower", "slower"]


def test_a_flow_without_a_parallel_method_of_the_first_life_goes_on(url, monkeypatch):
    """A program that was changed does not wait for ever for the method that it has no more."""
    monkeypatch.setattr("holdfast.adapters.base.call_order.WAIT_SECONDS", 0.5)
    counted: list[str] = []

    def make(*, is_changed: bool) -> Any:
        class Office(Flow):
            if not is_changed:

                @start()
                def other(self) -> str:
                    return "other"

            @start()
            def first(self) -> str:
                time.sleep(0.3)
                return "first"

            @listen(first)
            def last(self, _: Any) -> str:
                counted.append("last")
                if not is_changed:
                    raise RuntimeError("the model is away")
                return "done"

        return resumable(Office(suppress_flow_events=True), session_id="s", store=url)

    with pytest.raises(RuntimeError, match="away"):
        make(is_changed=False).kickoff(turn="1")
    assert make(is_changed=True).kickoff(turn="1") == "done"
    assert counted == ["last", "last"]


@survives("a method whose result can't be stored", "runs again, with its calls replayed")
def test_a_method_whose_result_cant_be_stored_runs_again_with_its_calls_replayed(url):
    models: list[FunctionModel] = []

    class Loose(Flow[dict]):
        @start()
        def begin(self) -> Any:
            models.append(echo())
            self.state["said"] = make_agent(models[-1]).kickoff("go").raw
            return object()

        @listen(begin)
        def finish(self) -> str:
            if len(models) == 1:
                raise Interrupted
            return str(self.state["said"])

    with pytest.raises(Interrupted):
        resumable(Loose(suppress_flow_events=True), session_id="s", store=url).kickoff()
    assert resumable(Loose(suppress_flow_events=True), session_id="s", store=url).kickoff() == "1 heard"
    assert [model.asked for model in models] == [1, 0]


# -- the framework's own seam ------------------------------------------------------------------------------------------


def test_a_flow_is_persisted_and_forked_by_crewais_own_means(url):
    persistence = HoldfastPersistence(url)

    @persist(persistence)
    class Counter(Flow[Count]):
        @start()
        def count(self) -> int:
            self.state.numbers.append(len(self.state.numbers))
            return len(self.state.numbers)

    first = Counter(suppress_flow_events=True)
    first.kickoff()
    second = Counter(suppress_flow_events=True)
    second.kickoff(inputs={"id": first.state.id})
    assert second.state.numbers == [0, 1]
    third = Counter(suppress_flow_events=True)
    third.kickoff(restore_from_state_id=first.state.id)
    assert third.state.numbers == [0, 1, 2]
    assert third.state.id != first.state.id
    assert persistence.load_state("unknown") is None
    with SyncClient.open(url) as client:
        assert [one.step_name for one in client.timeline(first.state.id)] == ["count", "count"]
    assert "store.db" not in first.model_dump_json()
    persistence.close()
    assert_secret_is_not_stored(url, "a secret of the program")


def test_a_flow_that_waits_for_feedback_goes_on_in_another_object(url):
    class Later:
        def request_feedback(self, context: Any, flow: Any) -> str:
            raise HumanFeedbackPending(context)

    class Review(Flow[dict]):
        @start()
        @human_feedback(message="good?", provider=Later())
        def write(self) -> str:
            self.state["text"] = "a text"
            return "a text"

        @listen(write)
        def publish(self, reviewed: Any) -> str:
            return f"{self.state['text']}: {reviewed.feedback}"

    persistence = HoldfastPersistence(url)
    paused = Review(persistence=persistence, suppress_flow_events=True).kickoff()
    assert isinstance(paused, HumanFeedbackPending)
    persistence.close()
    again = HoldfastPersistence(url)
    flow = Review.from_pending(paused.context.flow_id, again, suppress_flow_events=True)
    assert flow.resume("fine") == "a text: fine"
    assert again.load_pending_feedback(paused.context.flow_id) is None
    with pytest.raises(ValueError, match="No pending feedback"):
        Review.from_pending(paused.context.flow_id, again)
    again.close()
