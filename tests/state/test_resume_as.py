"""`client.resume_as`: a session continues in another framework; the source, effects and approvals stay."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import Client, Effect, SyncClient, TargetTool
from holdfast.errors import (
    ApprovalPendingError,
    CheckpointNotFoundError,
    ConflictError,
    ConversionError,
    EffectUnknownError,
    HoldfastError,
    LeaseHeldError,
    OpenToolCallError,
    UsageError,
)
from holdfast.operations import lineage
from holdfast.redaction import by_path
from holdfast.transcript import to_transcript

pytestmark = [
    pytest.mark.every_store,
    pytest.mark.filterwarnings("ignore:.*came back as plain data:holdfast.errors.HoldfastWarning"),
]


def call(id_: str = "c1", name: str = "pay", arguments: str = '{"to": "bob"}') -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def asked(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def told(content: str = "paid", id_: str = "c1") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": content}


USER = {"role": "user", "content": "pay bob"}
DONE = {"role": "assistant", "content": "Bob is paid."}
PAID = [{"role": "system", "content": "Pay once."}, USER, asked(call()), told(), DONE]
OPEN = [USER, asked(call())]


@pytest.fixture
def client(store):
    with store.client(on_unknown_type="plain") as client:
        yield client


def save(client: SyncClient, messages: list[Any], session: str = "s", **state: Any) -> str:
    return client.save("agent", session_id=session, execution_state={"messages": messages, **state})


# -- the plan and the save ---------------------------------------------------------------------------------------------


def test_a_plan_says_what_is_lost_and_writes_nothing(client):
    save(client, PAID)
    before = client.tree("s")
    plan = client.resume_as("s", "crewai")
    assert [one.kind for one in plan.losses] == ["instructions"]
    assert str(plan.losses[0].severity) == "content" and plan.losses[0].path == "messages.0.parts.0"
    assert [one.role for one in plan.messages] == ["user", "assistant", "tool", "assistant"]
    assert list(plan.instructions) == ["Pay once."]
    assert repr(plan) == f"<ResumePlan {plan.source_id[-8:]} to crewai: 4 messages, losses: 1 content>"
    assert client.tree("s") == before


def test_a_save_makes_a_session_of_the_target_in_the_same_tree(client):
    source = save(client, PAID)
    new = client.resume_as("s", "crewai").save("crew")
    assert new == "s-crewai-1"
    head = client.latest(new)
    assert (head.framework, head.agent_id, head.parent_id) == ("crewai", "crew", source)
    assert head.tree_id == client.get(source).tree_id
    assert client.latest("s").checkpoint_id == source
    about = head.metadata["converted"]
    assert (about["from"], about["to"], about["source"]) == ("custom", "crewai", source)
    assert about["instructions"] == ["Pay once."] and about["kinds"] == ["instructions"]
    assert [one.text for one in to_transcript(head) if one.role == "assistant"][-1] == "Bob is paid."
    assert client.resume_as("s", "crewai").save("crew") == "s-crewai-2"
    assert client.resume_as(new, "openai_chat").save("loop") == "s-openai_chat-1"  # names don't grow
    assert client.resume_as("s-openai_chat-1", "crewai").save("crew") == "s-crewai-3"
    assert client.verify().problems == ()


def test_the_client_with_await_does_the_same():
    async def story() -> None:
        async with Client.memory() as client:
            await client.save("agent", session_id="s", execution_state={"messages": PAID})
            plan = await client.resume_as("s", "pydantic_ai")
            assert await plan.save("agent", session_id="t") == "t"
            assert (await client.latest("t")).framework == "pydantic_ai"

    asyncio.run(story())


def test_a_repeated_save_is_a_no_op_and_another_name_in_use_is_a_conflict(client):
    save(client, PAID)
    plan = client.resume_as("s", "autogen")
    assert plan.save("agent", session_id="t") == "t"
    first = client.latest("t").checkpoint_id
    client.save("agent", "autogen", {"messages": []}, session_id="t")
    assert client.resume_as("s", "autogen").save("agent", session_id="t") == "t"
    assert [one.checkpoint_id for one in client.timeline("t")][-1] == first
    assert len(client.timeline("t")) == 2
    with pytest.raises(ConflictError, match="exists already"):
        plan.save("another", session_id="t")
    with pytest.raises(ConflictError, match="exists already"):
        plan.save("agent", session_id="s")


def test_a_converted_session_can_be_undone_exported_and_compared(client, tmp_path):
    save(client, PAID)
    client.resume_as("s", "langgraph").save("agent", session_id="t")
    assert client.latest("lg/t").framework == "langgraph"
    client.undo()
    assert client.session("lg/t") is None
    client.redo()
    assert client.session("lg/t") is not None
    client.export(tmp_path / "b.holdfast")
    with SyncClient.memory(on_unknown_type="plain") as other:
        other.import_(tmp_path / "b.holdfast")
        assert other.latest("lg/t").checksum == client.latest("lg/t").checksum


def test_tasks_files_and_context_stay_with_the_tree(client, tmp_path):
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "a.txt").write_text("a")
    client.save(
        "agent", session_id="s", execution_state={"messages": PAID}, context={"mine": 1}, tasks={"a": "done"},
        workspace=tmp_path / "w",
    )  # fmt: skip
    head = client.latest(client.resume_as("s", "crewai").save("crew"))
    source = client.latest("s")
    assert (head.workspace, head.tasks, head.agent_context) == (source.workspace, {"a": "done"}, {"mine": 1})


# -- state beside the conversation -------------------------------------------------------------------------------------


def test_state_beside_the_conversation_is_carried_or_kept_in_the_context(client):
    save(client, PAID, plan=["a"], seen={"x"})
    plan = client.resume_as("s", "google_adk", carry={"plan": "todo"})
    assert [(one.kind, one.path) for one in plan.losses if one.kind == "state"] == [("state", "state.seen")]
    head = client.latest(plan.save("clerk"))
    assert head.execution_state["state"] == {"todo": ["a"]}
    assert head.agent_context == {"custom_state": {"seen": {"x"}}}
    plan = client.resume_as("s", "crewai", carry={"plan": "todo"})  # which has no state of its own
    assert [one.path for one in plan.losses if one.kind == "state"] == ["state.seen", "state.plan"]
    head = client.latest(plan.save("crew"))
    assert head.agent_context == {"custom_state": {"seen": {"x"}}, "todo": ["a"]}
    head = client.latest(client.resume_as("s", "langgraph", carry={"plan": "todo"}).save("graph"))
    assert head.execution_state["channel_values"]["todo"] == ["a"]


def test_values_that_are_carried_never_replace_others(client):
    save(client, PAID, plan=["a"], seen="x")
    with pytest.raises(UsageError, match="several values the name 'todo'"):
        client.resume_as("s", "langgraph", carry={"plan": "todo", "seen": "todo"})
    for name in ("messages", "branch:to:pay", "__start__"):  # the conversation, and what says which nodes are next
        plan = client.resume_as("s", "langgraph", carry={"plan": name})
        assert [one.path for one in plan.losses if one.kind == "state"] == ["state.seen", "state.plan"]
        head = client.latest(plan.save("graph"))
        assert head.execution_state["channel_values"].keys() == {"messages"}
        assert head.agent_context[name] == ["a"]
        assert to_transcript(head).cursor.is_finished
    state = {"messages": PAID, "plan": ["a"], "seen": "x"}
    client.save("agent", session_id="s", execution_state=state, context={"todo": "mine", "custom_state": "also mine"})
    with pytest.raises(UsageError, match=r"'todo'.*agent_context.*Choose a name that is free"):
        client.resume_as("s", "crewai", carry={"plan": "todo"})
    assert client.latest(client.resume_as("s", "crewai").save("crew")).agent_context == {
        "todo": "mine",
        "custom_state": "also mine",
        "custom_state_2": {"plan": ["a"], "seen": "x"},
    }


# -- calls without results ---------------------------------------------------------------------------------------------


def test_an_open_call_raises_unless_the_caller_decides(client):
    save(client, OPEN)
    for policy in ("ledger", "raise"):
        with pytest.raises(OpenToolCallError, match=r"'pay' \(c1\).*dangling='answer'") as caught:
            client.resume_as("s", "crewai", dangling=policy)
        assert caught.value.call_ids == ("c1",)
    plan = client.resume_as("s", "crewai", dangling="answer")
    assert "unknown whether this call was carried out" in plan.messages[-1].tool_responses[0].content[0].content
    assert [one.kind for one in plan.losses] == ["unknown_outcomes", "error_flags"]
    plan = client.resume_as("s", "crewai", dangling="drop")
    assert [one.role for one in plan.messages] == ["user"]
    assert [one.kind for one in plan.losses] == ["open_calls"]


def test_the_ledger_answers_a_call_whose_effect_is_done_once(client):
    with client.run("s") as run:
        run.effect("pay", lambda to: f"paid {to}", to="bob")
        run.state = {"messages": [USER, asked(call("c1"))]}
        run.save("asked")
    plan = client.resume_as("s", "crewai")
    assert plan.messages[-1].tool_responses[0].content[0].content == "paid bob"
    assert not [one for one in plan.losses if one.kind == "open_calls"]
    save(client, [USER, asked(call("c1")), told("paid bob"), asked(call("c2"))], "t")
    with client.run("s") as run:  # the effect is told already: a second call has no result
        run.state = {"messages": [USER, asked(call("c1")), told("paid bob"), asked(call("c2"))]}
        run.save("asked again")
    with pytest.raises(OpenToolCallError, match="c2"):
        client.resume_as("s", "crewai")
    with pytest.raises(OpenToolCallError):
        client.resume_as("s", "crewai", dangling="raise")


def test_calls_with_one_id_in_a_message_get_their_results_in_order(client):
    twice = asked(call("a", arguments='{"to": "bob"}'), call("a", arguments='{"to": "carol"}'))
    save(client, [USER, twice, told("bob is paid", "a"), told("carol is paid", "a"), asked(call("a")), told("x", "a")])
    plan = client.resume_as("s", "anthropic")
    calls = {one.id: one.arguments["to"] for message in plan.messages for one in message.tool_calls}
    results = {one.id: one.content[0].content for message in plan.messages for one in message.tool_responses}
    assert [(calls[id_], results[id_]) for id_ in calls] == [
        ("bob", "bob is paid"), ("carol", "carol is paid"), ("bob", "x"),
    ]  # fmt: skip
    save(client, [USER, twice, told("bob is paid", "a")], "open")
    with pytest.raises(OpenToolCallError) as caught:
        client.resume_as("open", "anthropic")
    assert caught.value.call_ids == ("a_a090a256",)


def test_the_ledger_answers_no_call_that_redaction_has_made_equal_to_another():
    def use(id_: str, to: str) -> dict[str, Any]:
        return {"type": "tool_use", "id": id_, "name": "pay", "input": {"to": to}}

    with SyncClient.memory(redact=by_path("**.to")) as client, client.run("s") as run:
        run.effect("pay", lambda to: f"paid {to}", to="carol", key="carol")
        run.state = {"messages": [USER, {"role": "assistant", "content": [use("b", "bob"), use("c", "carol")]}]}
        run.save("asked")
        with pytest.raises(OpenToolCallError) as caught:  # the effect may be of either call
            client.resume_as("s", "crewai", run=run)
        assert caught.value.call_ids == ("b", "c")
        run.state = {"messages": [USER, {"role": "assistant", "content": [use("c", "carol")]}]}
        run.save("asked once")
        plan = client.resume_as("s", "crewai", run=run)
        assert plan.messages[-1].tool_responses[0].content[0].content == "paid carol"


def test_names_of_users_are_lost_aloud(client):
    save(client, [{**USER, "name": "ann"}, {**USER, "name": "user"}, DONE])
    plan = client.resume_as("s", "langgraph")
    assert [(one.kind, one.path) for one in plan.losses] == [("user_names", "messages.0")]


def test_an_effect_in_doubt_stops_the_move_until_it_is_resolved(client):
    def fail(to: str) -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError), client.run("s") as run:
        run.state = {"messages": OPEN}
        run.save("asked")
        run.effect("pay", fail, to="bob")
    for policy in ("ledger", "answer", "drop"):
        with pytest.raises(EffectUnknownError, match="holdfast resolve") as caught:
            client.resume_as("s", "crewai", dangling=policy)
    client.resolve_effect(caught.value.effect.effect_id, "done", result="paid", by="ann")
    plan = client.resume_as("s", "crewai")
    assert plan.messages[-1].tool_responses[0].content[0].content == "paid"


def test_a_call_that_was_certainly_not_carried_out_is_told_as_failed(client):
    from holdfast.errors import EffectNotDoneError

    def fail(to: str) -> None:
        raise EffectNotDoneError("no money")

    with pytest.raises(EffectNotDoneError), client.run("s") as run:
        run.state = {"messages": OPEN}
        run.save("asked")
        run.effect("pay", fail, to="bob")
    [answer] = client.resume_as("s", "anthropic").messages[-1].tool_responses
    assert answer.is_error and "was not carried out" in answer.content[0].content


def test_a_call_is_executed_within_a_run_once(client):
    made = []

    @Effect("irreversible", key="to")
    def pay(to: str) -> str:
        made.append(to)
        return f"paid {to}"

    save(client, OPEN)
    with pytest.raises(UsageError, match="open one on a session of the same tree"):
        client.resume_as("s", "crewai", dangling="execute", tools=[pay])
    save(client, OPEN, "other")
    with client.run("other") as run, pytest.raises(UsageError, match="another tree"):
        client.resume_as("s", "crewai", dangling="execute", tools=[pay], run=run)
    with client.run("s") as run:
        with pytest.raises(UsageError, match="needs the function"):
            client.resume_as("s", "crewai", dangling="execute", tools=["pay"], run=run)
        for _ in range(2):
            plan = client.resume_as("s", "crewai", dangling="execute", tools=[pay], run=run)
            assert plan.messages[-1].tool_responses[0].content[0].content == "paid bob"
    assert made == ["bob"]


def test_an_async_run_executes_too():
    async def story() -> None:
        async with Client.memory() as client:
            await client.save("agent", session_id="s", execution_state={"messages": OPEN})

            async def pay(to: str) -> str:
                return f"paid {to}"

            async with client.run("s") as run:
                plan = await client.resume_as("s", "crewai", dangling="execute", tools={"pay": pay}, run=run)
                with SyncClient.memory() as other, pytest.raises(UsageError, match="open the run with the same client"):
                    other.resume_as("s", "crewai", dangling="execute", tools={"pay": pay}, run=run)
            assert plan.messages[-1].tool_responses[0].content[0].content == "paid bob"

    asyncio.run(story())


# -- approvals ---------------------------------------------------------------------------------------------------------


def test_an_approval_that_waits_is_asked_again_in_the_target(client):
    save(client, OPEN)
    client.request_approval("s", "pay", {"to": "bob"})
    plan = client.resume_as("s", "crewai")
    [answer] = plan.messages[-1].tool_responses
    assert "waited for a person's approval" in answer.content[0].content
    assert "approvals" in [one.kind for one in plan.losses]
    assert len(client.approvals("s")) == 1
    with pytest.raises(ApprovalPendingError, match="approvals='reask'"):
        client.resume_as("s", "crewai", approvals="raise")


def test_calls_that_a_person_was_asked_about_at_once_were_not_carried_out(client):
    calls = asked(call("a"), call("b", arguments='{"to": "carol"}'), call("c", "look", "{}"))
    state = graph_state("ask", messages=[USER, calls, told("seen", "c")])
    requests = [{"name": "pay", "args": {"to": to}, "description": "?"} for to in ("bob", "carol")]
    state["interrupts"] = [{"id": "i1", "value": {"action_requests": requests}}]
    client.save("g", "langgraph", state, session_id="lg/t")
    plan = client.resume_as("lg/t", "crewai")
    answers = {part.id: part.content[0].content for one in plan.messages for part in one.tool_responses}
    assert answers["c"] == "seen"
    assert all("waited for a person's approval" in answers[id_] for id_ in ("a", "b"))
    state["interrupts"][0]["value"]["action_requests"].pop()  # of the other call, nothing is known
    client.save("g", "langgraph", state, session_id="lg/t")
    with pytest.raises(OpenToolCallError) as caught:
        client.resume_as("lg/t", "crewai")
    assert caught.value.call_ids == ("b",)


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_a_source_that_a_live_process_has_is_refused(client):
    save(client, PAID)
    with client.lease("s", holder="worker-1"):
        with pytest.raises(LeaseHeldError, match=r"worker-1.*while_running=True"):
            client.resume_as("s", "crewai")
        assert client.resume_as("s", "crewai", while_running=True).save("crew")


def test_a_plan_is_refused_when_the_source_was_taken_up_since(client):
    save(client, PAID)
    plan = client.resume_as("s", "crewai")
    assert plan.save("crew", session_id="t") == "t"

    def fail(to: str) -> None:
        raise TimeoutError

    with client.run("s", holder="worker-1") as run:
        with pytest.raises(LeaseHeldError, match="worker-1"):
            plan.save("crew")
        with pytest.raises(TimeoutError):
            run.effect("pay", fail, to="bob")
    with pytest.raises(EffectUnknownError, match="'pay'"):
        plan.save("crew")
    assert plan.save("crew", session_id="t") == "t"  # it is there already
    assert {one.session_id for one in client.sessions()} == {"s", "t"}


def test_losses_of_meaning_must_be_accepted(client):
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    use = {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "look", "input": {}}]}
    seen = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [image]}]}
    save(client, [USER, use, seen, DONE])
    with pytest.raises(ConversionError, match=r"result_images at messages.2.*accept=\['result_images'\]") as caught:
        client.resume_as("s", "crewai")
    assert [one.kind for one in caught.value.losses] == ["result_images"]
    plan = client.resume_as("s", "crewai", accept=["result_images"])
    assert "not carried over: image/png, 2 bytes" in plan.messages[2].tool_responses[0].content[0].content
    assert client.resume_as("s", "anthropic").losses == ()


def test_an_image_of_a_result_without_a_call_is_not_lost_silently(client):
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    save(client, [USER, told([image], "nobody asked"), DONE])
    with pytest.raises(ConversionError, match=r"images at messages.1.parts.0"):
        client.resume_as("s", "crewai")
    plan = client.resume_as("s", "anthropic")
    assert [one.kind for one in plan.losses] == ["stray_results"]
    assert [part.kind for part in plan.messages[0].parts] == ["text", "blob"]


def test_a_role_that_others_lack_is_lost_aloud(client):
    save(client, [USER, {"role": "critic", "content": "Bob asks for too much."}, DONE])
    plan = client.resume_as("s", "anthropic")
    assert [(one.kind, one.path) for one in plan.losses] == [("user_names", "messages.1")]
    save(client, [USER, {**asked(call()), "role": "bot"}, told(), {**DONE, "role": "bot"}])
    plan = client.resume_as("s", "agent_framework")  # only a model makes calls
    assert [(one.role, one.author) for one in plan.messages[:2]] == [("user", None), ("assistant", "bot")]
    assert [one.kind for one in plan.losses] == ["user_names"]


def test_hosted_calls_are_refused(client):
    item = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    client.save("a", "openai_agents", {"messages": [USER, item, DONE], "turn": None}, session_id="s")
    with pytest.raises(ConversionError, match=r"'web_search_call'.*provider carries out"):
        client.resume_as("s", "crewai")


def graph_state(*pending: str, messages: list[Any]) -> dict[str, Any]:
    return {"channel_values": {"messages": messages, **{f"branch:to:{one}": None for one in pending}}, "v": 4}


def test_positions_within_a_graph_are_refused_or_left_out(client):
    first = [USER, asked(call()), told(), DONE]
    client.save("a", "langgraph", graph_state("review", "mail", messages=[*first, USER]), session_id="two")
    with pytest.raises(ConversionError, match=r"2 pending branches \(review, mail\).*at='last_turn'"):
        client.resume_as("two", "crewai")
    client.save("a", "langgraph", graph_state("review", messages=[*first, USER, DONE]), session_id="one")
    with pytest.raises(ConversionError, match="stands within a graph, before 'review'"):
        client.resume_as("one", "crewai")
    plan = client.resume_as("one", "crewai", at="last_turn")
    assert [one.role for one in plan.messages] == ["user", "assistant", "tool", "assistant"]
    assert "unfinished_turn" in [one.kind for one in plan.losses]
    client.save("a", "langgraph", graph_state("tools", messages=OPEN), session_id="calls")
    assert client.resume_as("calls", "crewai", dangling="answer")  # the calls tell what is next
    with pytest.raises(ConversionError, match="in its first turn"):
        client.resume_as("calls", "crewai", at="last_turn")
    save(client, [{"role": "system", "content": "Pay once."}, *OPEN], "instructed")
    with pytest.raises(ConversionError, match="in its first turn"):  # the instructions are no turn
        client.resume_as("instructed", "crewai", at="last_turn")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"framework": "nonsense"}, "the targets are langgraph, crewai"),
        ({"framework": "claude_agent"}, "can't be converted to claude_agent.*not public.*Choose one of"),
        ({"framework": "claude"}, "not public"),
        ({"framework": "llama_index"}, "can't be converted to llama_index.*no conversation of its own.*Choose one of"),
        ({"framework": 3}, "must be the name"),
        ({"dangling": "maybe"}, "dangling"),
        ({"at": "noon"}, "last_turn"),
        ({"approvals": "never"}, "reask"),
        ({"accept": ["everything"]}, "no kind of loss"),
        ({"accept": [["text"]]}, "no kind of loss"),
        ({"accept": [None]}, "no kind of loss"),
        ({"accept": 7}, "must list kinds of losses"),
        ({"run": 7}, "must be an open run"),
        ({"carry": {"x": "y"}}, "carry names 'x'.*It has none"),
        ({"carry": {"x": 1}}, "carry is"),
        ({"carry": 7}, "carry is"),
        ({"tools": 7}, "must list the target's tools"),
        ({"tools": {"pay": TargetTool}, "dangling": "execute"}, "open one on a session"),
    ],
)
def test_bad_input_is_refused_in_words(options, says):
    with SyncClient.memory() as client:
        save(client, PAID)
        with pytest.raises(UsageError, match=says):
            client.resume_as("s", **{"framework": "crewai", **options})
        assert len(client.sessions()) == 1


def test_what_is_not_there_or_no_conversation_is_refused(client):
    with pytest.raises(CheckpointNotFoundError):
        client.resume_as("nowhere", "crewai")
    client.save("agent", session_id="n", execution_state={"n": 1})
    save(client, [{"role": "system", "content": "Pay once."}, {"role": "user", "content": " "}], "silent")
    for session in ("n", "silent"):
        with pytest.raises(UsageError, match="has no conversation"):
            client.resume_as(session, "crewai")
    for state in ({"messages": [{"role": "model", "content": {"parts": 7}}], "turn": None}, {"messages": 3}, [1], "x"):
        id_ = client.save("agent", "google_adk", state, session_id="odd")
        with pytest.raises(HoldfastError):
            client.resume_as(id_, "crewai")


# -- back --------------------------------------------------------------------------------------------------------------


def test_the_way_back_continues_the_native_state(client):
    native = graph_state(messages=[USER, asked(call()), told(), DONE])
    native["channel_values"]["plan"] = ["keep me"]
    source = client.save("g", "langgraph", native, session_id="lg/t")
    plan = client.resume_as("lg/t", "crewai")
    assert [one.kind for one in plan.losses] == ["state"]
    there = plan.save("crew")
    state = client.latest(there).execution_state
    more = [{"role": "user", "content": "and carol"}, {"role": "assistant", "content": "Carol, too.", "agent": "crew"}]
    client.save("crew", "crewai", {**state, "messages": [*state["messages"], *more]}, session_id=there)
    back = client.resume_as(there, "langgraph")
    assert back.native_id == source
    home = client.latest(back.save("g", session_id="home"))
    values = home.execution_state["channel_values"]
    assert values["plan"] == ["keep me"]
    assert values["messages"][:4] == native["channel_values"]["messages"]  # as they were, not converted twice
    # New messages are LangChain's objects where it is imported, else plain data: the transcript reads both.
    assert [one.parts[0].content for one in to_transcript(home).messages[4:]] == ["and carol", "Carol, too."]


def test_the_way_back_from_within_a_tool_call_adds_the_result(client):
    client.save("g", "langgraph", graph_state("tools", messages=OPEN), session_id="lg/t")
    there = client.resume_as("lg/t", "crewai", dangling="answer").save("crew")
    state = client.latest(there).execution_state
    client.save("crew", "crewai", {**state, "messages": [*state["messages"], DONE]}, session_id=there)
    back = client.resume_as(there, "langgraph")
    values = client.latest(back.save("g", session_id="home")).execution_state["channel_values"]
    assert [to_transcript(client.latest("lg/home")).messages[at].role for at in range(4)] == [
        "user", "assistant", "tool", "assistant",
    ]  # fmt: skip
    assert values["messages"][:2] == OPEN and len(values["messages"]) == 4
    assert not [name for name in values if name.startswith("branch:")]


def test_a_native_state_that_does_not_fit_any_more_is_left_behind_and_said(client):
    client.save("g", "langgraph", graph_state(messages=[USER, DONE]), session_id="lg/t")
    there = client.resume_as("lg/t", "crewai").save("crew")
    state = client.latest(there).execution_state
    client.save(
        "crew", "crewai", {**state, "messages": [{"role": "user", "content": "summary"}, DONE]}, session_id=there
    )
    back = client.resume_as(there, "langgraph")
    assert back.native_id is None and "native_state" in [one.kind for one in back.losses]
    assert [one.text for one in back.messages] == ["summary", "Bob is paid."]


def test_a_native_state_before_a_third_framework_is_left_behind_and_said(client):
    source = client.save("g", "langgraph", graph_state(messages=[USER, DONE]), session_id="lg/t")
    there = client.resume_as("lg/t", "crewai").save("crew")
    further = client.resume_as(there, "autogen").save("clerk")
    back = client.resume_as(further, "langgraph")
    assert back.native_id is None
    [loss] = [one for one in back.losses if one.kind == "native_state"]
    assert loss.path == f"checkpoint {source}"
    assert client.resume_as(further, "crewai").native_id == client.latest(there).checkpoint_id
    assert not [one for one in client.resume_as(further, "strands").losses if one.kind == "native_state"]


def test_the_way_back_is_found_along_a_line_of_several_pages(client, monkeypatch):
    monkeypatch.setattr(lineage, "PAGE", 2)
    source = client.save("g", "langgraph", graph_state(messages=[USER, DONE]), session_id="lg/t")
    there = client.resume_as("lg/t", "crewai").save("crew")
    ids = []
    for number in range(5):
        state = client.latest(there).execution_state
        more = {"role": "user", "content": f"and {number}"}
        told = {**state, "messages": [*state["messages"], more]}
        ids.append(client.save("crew", "crewai", told, session_id=there))
        if number == 3:
            there = client.fork(there, session_id="fork").session_id
    for id_ in ids[1:3]:
        client.expire(id_)
    back = client.resume_as(there, "langgraph")
    assert back.native_id == source
    assert [one.text for one in back.messages][-1].split("\n\n") == ["and 0", "and 1", "and 2", "and 3", "and 4"]
