"""What went wrong in the checkpoint module that this loop is in the spirit of: each has a test with
the right behaviour."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from agent_models import Script, calls

from holdfast import AgentState, LeaseHeldError, PlanStep, SyncFileCheckpoints, agent, tool


@tool(kind="read")
def look(what: str) -> str:
    return f"{what} is 7"


LOOK = calls(("c1", "look", {"what": "x"}))


@pytest.fixture(params=["client", "files"])
def checkpoints(request, quick, tmp_path):
    return quick if request.param == "client" else SyncFileCheckpoints(tmp_path)


# -- steps went backwards on a resume ----------------------------------------------------------------------------------


def test_steps_go_on_after_a_resume(checkpoints):
    kept = []
    for prompt in ("one", "two", "three"):
        bot = agent(model=Script(LOOK, "7"), tools=[look], checkpoints=checkpoints, session_id="s")
        kept.append(bot.generate(prompt).state.step)
    assert kept == [2, 4, 6]
    if isinstance(checkpoints, SyncFileCheckpoints):
        assert checkpoints.load_metadata("s").step == 6


# -- a "step" was a whole loop of tools, and all of it was lost
# ---------------------------------------------------------


def test_a_crash_after_many_tools_loses_none_of_them(checkpoints):
    done = []

    @tool(kind="idempotent")
    def note(number: int) -> int:
        done.append(number)
        return number

    wanted = [calls((f"c{n}", "note", {"number": n})) for n in range(10)]
    bot = agent(model=Script(*wanted, SystemExit("crash")), tools=[note], checkpoints=checkpoints, session_id="s")
    with pytest.raises(SystemExit):
        bot.generate("go")
    turn = agent(model=Script("all noted"), tools=[note], checkpoints=checkpoints, session_id="s").generate()
    assert (done, turn.text, turn.state.step) == (list(range(10)), "all noted", 11)


# -- traces of sub-agents were never collected
# ---------------------------------------------------------------------------


def team(checkpoints, chief, helper, tools=(look,)):
    scout = agent(model=helper, tools=list(tools), sync=True).as_tool("scout", "Finds things out.")
    return agent(model=chief, tools=[scout], checkpoints=checkpoints, session_id="s")


ASK = calls(("d1", "scout", {"prompt": "what is x?"}))


def test_the_trace_of_a_sub_agent_is_kept_and_restored(checkpoints):
    helper = Script({"choices": [{"message": LOOK}], "usage": {"total_tokens": 4}}, "x is 7, says look")
    turn = team(checkpoints, Script(ASK, "7"), helper).generate("find x")
    [trace] = turn.state.subagent_traces
    assert (trace.subagent_type, trace.parent_tool_call_id, trace.prompt) == ("scout", "d1", "what is x?")
    assert (trace.success, trace.result, trace.error) == (True, "x is 7, says look", None)
    assert trace.started_at <= trace.ended_at
    assert [(call.name, call.failed) for call in trace.tool_calls] == [("look", False)]
    assert trace.usage == {"total_tokens": 4}
    assert turn.state.messages[2]["content"] == "x is 7, says look"
    assert team(checkpoints, Script(), Script()).load() == turn.state  # as another process finds it
    assert "subagents" not in turn.state.metadata  # what it was at work with is not needed any more


def test_a_sub_agent_that_failed_is_traced_and_told(checkpoints):
    chief = Script(ASK, "too bad")
    turn = team(checkpoints, chief, Script(LOOK, ConnectionError("gone"))).generate("find x")
    [trace] = turn.state.subagent_traces
    assert (trace.success, trace.error) == (False, "ConnectionError: gone")
    assert [call.name for call in trace.tool_calls] == ["look"]
    assert "gone" in chief.last_answers[0]


def test_a_sub_agent_goes_on_where_it_stopped(checkpoints):
    done = []

    @tool(kind="idempotent")
    def note(number: int) -> int:
        done.append(number)
        return number

    steps = [calls((f"c{n}", "note", {"number": n})) for n in range(3)]
    first = team(checkpoints, Script(ASK), Script(*steps, SystemExit("crash")), [note])
    with pytest.raises(SystemExit):
        first.generate("go")
    turn = team(checkpoints, Script("thanks"), Script("three notes"), [note]).generate()
    assert (done, turn.text) == ([0, 1, 2], "thanks")
    [trace] = turn.state.subagent_traces
    assert (trace.prompt, trace.result) == ("what is x?", "three notes")
    assert len(trace.tool_calls) == 3


def test_sub_agents_do_not_clobber_each_other_or_their_parent(checkpoints):
    both = calls(("d1", "scout", {"prompt": "a"}), ("d2", "scout", {"prompt": "b"}))
    turn = team(checkpoints, Script(both, "done"), Script("A", "B")).generate("both")
    assert [message["content"] for message in turn.state.messages if message["role"] == "tool"] == ["A", "B"]
    assert [trace.result for trace in turn.state.subagent_traces] == ["A", "B"]


# -- ids were dropped
# ----------------------------------------------------------------------------------------------------


def test_ids_and_times_of_messages_are_the_same_after_a_restore(checkpoints):
    first = agent(model=Script(LOOK, "7"), tools=[look], checkpoints=checkpoints, session_id="s").generate("x?").state
    second = agent(model=Script("yes"), tools=[look], checkpoints=checkpoints, session_id="s").generate("sure?").state
    known = [(message["id"], message["timestamp"]) for message in first.messages]
    assert [(message["id"], message["timestamp"]) for message in second.messages[: len(known)]] == known
    assert len({message["id"] for message in second.messages}) == len(second.messages)


def test_who_an_agent_is_does_not_change_with_the_process(checkpoints):
    for _ in range(2):
        agent(model=Script("hi"), checkpoints=checkpoints, session_id="s").generate("hello")
    state = agent(model=Script(), checkpoints=checkpoints, session_id="s").load()
    assert state.metadata["agent_id"] == "agent"
    assert state.metadata["session_id"] == "s"


# -- the plan was mutated, never saved, and made anew
# ---------------------------------------------------------------------


def test_a_plan_is_kept_with_its_progress_and_older_states_keep_theirs(checkpoints):
    plan = [PlanStep(id="a", description="first"), PlanStep(id="b", description="then", depends_on=("a",))]
    bot = agent(model=Script("began", "went on"), checkpoints=checkpoints, session_id="s")
    first = bot.generate("go", AgentState.initial().with_plan(plan)).state
    second = bot.generate("on", first.with_plan_status("a", "completed").with_plan_status("b", "skipped")).state
    assert [step.status for step in first.plan] == ["pending", "pending"]
    assert [step.status for step in plan] == ["pending", "pending"]
    restored = agent(model=Script(), checkpoints=checkpoints, session_id="s").load()
    assert [step.status for step in restored.plan] == [step.status for step in second.plan] == ["completed", "skipped"]


# -- a query overwrote the session
# ------------------------------------------------------------------------------------------


def test_a_query_leaves_the_session_as_it_is(checkpoints):
    paid = []

    @tool(kind="irreversible")
    def pay() -> str:
        paid.append(1)
        return "paid"

    model = Script("hello", calls(("q1", "pay", {}), ("q2", "look", {"what": "y"})), "an aside", "back")
    bot = agent(model=model, tools=[look, pay], checkpoints=checkpoints, session_id="s")
    before = bot.generate("hi").state
    assert bot.query("by the way?").text == "an aside"
    assert [schema["function"]["name"] for schema in model.tools] == ["look"]
    assert (paid, bot.load()) == ([], before)
    assert bot.generate("so?").state.messages[:2] == before.messages


# -- saves raced each other, and the older one won
# ---------------------------------------------------------------------------


def test_two_at_once_in_one_session_do_not_overwrite_each_other(sqlite_store):
    inside, leave = threading.Event(), threading.Event()

    def slow(messages, tools):
        inside.set()
        assert leave.wait(240)
        return "first"

    first = agent(model=slow, checkpoints=sqlite_store.client(), session_id="s")
    with ThreadPoolExecutor(1) as pool:
        turn = pool.submit(first.generate, "one")
        assert inside.wait(240)
        client = sqlite_store.client()
        with pytest.raises(LeaseHeldError), client.run("s", wait=0):
            pytest.fail("the session is the other's")
        leave.set()
        assert turn.result(240).text == "first"
    second = agent(model=Script("second"), checkpoints=sqlite_store.client(), session_id="s").generate("two")
    assert [message["content"] for message in second.state.messages] == ["one", "first", "two", "second"]
