"""Conversations from every framework to every other, by pure functions: what is lost is what the table says."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from decimal import Decimal
from itertools import product
from typing import Any

import pytest
from conversations import CODEC, NAMED, NAMES, OPTIONS, convert, read_back, text
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import Framework, SyncClient
from holdfast.client.conversion_targets import TARGETS
from holdfast.errors import ConversionError, HoldfastError, OpenToolCallError, UsageError
from holdfast.model.conversation import (
    BlobPart,
    CompactionPart,
    FilePart,
    GenericPart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResponsePart,
    Transcript,
    TranscriptMessage,
    UriPart,
)
from holdfast.model.conversion_target import ALWAYS_LOST
from holdfast.model.loss import DECIDED, KINDS, MEASURED
from holdfast.model.provider_names import is_valid_id, is_valid_name, valid_id, valid_name
from holdfast.model.tool_map import ToolMap, read_tools
from holdfast.model.transcript_facets import list_facets
from holdfast.model.transcript_moves import (
    close_calls,
    cut_last_turn,
    fold_handoffs,
    map_tools,
    shorten_names,
    unique_ids,
)
from holdfast.model.transcript_order import find_disorder, order_messages
from holdfast.operations.measure_losses import measure_losses
from holdfast.transcript import from_transcript, messages_of_chat

ADDED_TO = {
    "text",
    "parallel_calls",
    "text_with_calls",
    "reasoning",
    "results",
    "authors",
    "message_data",
}  # notes, names, ids


def values(transcript: Transcript, kind: str) -> list[Any]:
    """Return the values of a facet; texts beside calls are those of another kind."""
    facet = "text" if kind == "text_with_calls" else kind
    return [one.value for one in list_facets(transcript)[facet] if (one.kind or facet) == kind]


@pytest.mark.parametrize("name", NAMES)
def test_a_target_loses_exactly_what_its_entry_says(name: str):
    assert {loss.kind for loss in convert(NAMED, name).losses} == TARGETS[name].loses | ALWAYS_LOST


@pytest.mark.parametrize(("source", "target"), list(product(NAMES, NAMES)), ids=str)
def test_every_pair_loses_what_the_table_says_and_nothing_else(source: str, target: str):
    here = read_back(source, convert(NAMED, source, replace(OPTIONS, seed="earlier")))
    moved = convert(here, target)
    there = read_back(target, moved)
    expected = {kind for kind in TARGETS[target].loses | ALWAYS_LOST if values(here, kind)}
    if {mime for _, mime in values(here, "media_types")} <= {"image/png"}:
        expected -= {"media_types"}  # AutoGen takes every image for one
    if target == "google_adk" and {who for _, who in values(here, "authors")} <= {OPTIONS.agent_id}:
        expected -= {"authors"}  # ADK takes everything for what this agent said
    assert {loss.kind for loss in moved.losses} == expected
    assert find_disorder(moved.fitted.transcript.messages) is None
    for kind in MEASURED.keys() - expected:
        kept = values(there, kind)
        if kind in ADDED_TO:
            rest = iter(kept)
            assert all(one in rest for one in values(here, kind)), kind
        else:
            assert kept == values(here, kind) or kind in ("media_types", "link_types"), kind


def test_of_two_equal_texts_the_one_beside_calls_is_lost():
    twice = Transcript(
        messages=(user(), asked(call("a"), said="I pay."), result("a"), asked(said="I pay."), user(), asked(said="ok"))
    )
    [loss] = convert(twice, "autogen").losses
    assert (loss.kind, loss.path) == ("text_with_calls", "messages.1.parts.0")


def test_there_and_back_and_there_again_is_stable():
    for name in NAMES:
        once = read_back(name, convert(NAMED, name))
        twice = read_back(name, convert(once, name))
        assert not [one for one in measure_losses(CODEC, once, twice) if one.kind != "message_data"]


def test_every_kind_of_loss_is_lost_somewhere_or_decided():
    lost = ALWAYS_LOST.union(*(target.loses for target in TARGETS.values()))
    never = {"text", "arguments", "results", "tool_names", "images"}  # no target may lose these
    assert set(MEASURED) - lost == never
    assert not set(MEASURED) & set(DECIDED)


def test_adapters_convert_where_no_framework_is_installed():
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import conversations as c\n"
        "for name in c.NAMES: c.convert(c.NAMED, name)\n"
        "bad = ('langchain', 'langgraph', 'crewai', 'agents', 'pydantic', 'google', 'agent_framework', 'autogen')\n"
        "bad += ('ag2', 'smolagents', 'PIL')\n"
        "print([n for n in sys.modules if n.partition('.')[0] in bad or n.startswith('autogen')])"
    )
    done = subprocess.run([sys.executable, "-c", script, "tests/support"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# -- any conversation --------------------------------------------------------------------------------------------------

WORDS = st.text(max_size=12)
IDS = st.sampled_from(["a", "b", "c", "", "call 1", "é" * 50, "x" * 90])
TOOLS = st.sampled_from(["pay", "look up", "transfer_to_bob", "x" * 90, "", "1st", "näme"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.binary(max_size=3) | st.dates(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS | st.integers(), inner, max_size=2),
    max_leaves=5,
)
ARGUMENTS = st.none() | st.dictionaries(WORDS | st.integers(0, 9), JSON, max_size=2)
MIME = st.sampled_from(["image/png", "image/jpeg", "application/pdf", "", "audio/wav"])
LEAVES = st.one_of(
    st.builds(TextPart, content=WORDS),
    st.builds(ReasoningPart, content=WORDS, signature=st.none() | WORDS, encrypted=st.none() | WORDS),
    st.builds(BlobPart, mime_type=MIME, data=st.none() | st.binary(max_size=5), sha256=st.none() | WORDS),
    st.builds(UriPart, uri=WORDS, mime_type=st.none() | MIME),
    st.builds(FilePart, file_id=WORDS),
    st.builds(CompactionPart, content=WORDS),
    st.builds(GenericPart, type=WORDS, values=st.dictionaries(WORDS, JSON, max_size=1)),
    st.builds(ToolCallPart, id=IDS, name=TOOLS, arguments=ARGUMENTS, raw_arguments=st.none() | WORDS),
)
PARTS = LEAVES | st.builds(
    ToolResponsePart, id=IDS, name=TOOLS, content=st.lists(LEAVES, max_size=2).map(tuple), is_error=st.booleans()
)
MESSAGES = st.builds(
    TranscriptMessage,
    role=st.sampled_from(["system", "user", "assistant", "assistant", "tool"]),
    parts=st.lists(PARTS, max_size=4).map(tuple),
    author=st.none() | WORDS,
)
TRANSCRIPTS = st.lists(MESSAGES, max_size=6)


def decide(messages: list[TranscriptMessage], policy: str, tools: ToolMap, *, cut: bool) -> Transcript:
    unique, _ = unique_ids(messages)
    if cut:
        unique = cut_last_turn(unique, is_finished=True).messages
    closed = close_calls(unique, policy, lambda _: None).messages
    mapped = map_tools(fold_handoffs(closed, tools).messages, tools, {}).messages
    return Transcript(messages=tuple(shorten_names(mapped)[0]))


@settings(deadline=None)
@given(TRANSCRIPTS, st.sampled_from(["answer", "drop", "raise"]), st.booleans(), st.booleans(), st.data())
def test_any_conversation_gives_valid_pairs_everywhere_or_a_refusal(messages, policy, cut, some_tools, data):
    tools = read_tools({"pay": "pay"} if some_tools else None)
    source, target = data.draw(st.sampled_from(NAMES)), data.draw(st.sampled_from(NAMES))
    try:
        decided = decide(messages, policy, tools, cut=cut)
    except OpenToolCallError as error:
        assert policy == "raise" and error.call_ids
        return
    first = convert(decided, source)
    assert find_disorder(first.fitted.transcript.messages) is None
    there = read_back(source, first)
    again = Transcript(messages=tuple(unique_ids(there.messages)[0]))
    second = convert(again, target)
    assert find_disorder(second.fitted.transcript.messages) is None
    for one in (*first.losses, *second.losses):
        assert one.kind in MEASURED or one.kind in DECIDED
    CODEC.encode(dict(second.converted.state))  # it can be saved
    kept = {"text", "arguments", "results"}  # no target loses what is said
    assert not [one for one in second.losses if one.kind in kept], second.losses


@settings(deadline=None)
@given(TRANSCRIPTS, st.sampled_from(NAMES))
def test_any_conversation_without_a_store_is_converted_or_refused(messages, target):
    try:
        made = from_transcript(Transcript(messages=tuple(messages)), target, accept=KINDS)
    except (OpenToolCallError, ConversionError):
        return
    assert {one.kind for one in made.losses} <= KINDS.keys()
    CODEC.encode(dict(made.state))


def test_a_conversation_is_converted_without_a_store():
    told = Transcript(messages=(user(), asked(call("a", "näme", to="bob")), result("a"), asked(said="done")))
    made = from_transcript(told, "anthropic")
    assert [one["role"] for one in made.state["messages"]] == ["user", "assistant", "user", "assistant"]
    assert [one.kind for one in made.losses] == ["tool_names"]
    assert messages_of_chat(made.state["messages"])[2].tool_responses[0].id == "a"
    with pytest.raises(OpenToolCallError):
        from_transcript(Transcript(messages=told.messages[:2]), "crewai")
    link = Transcript(messages=(TranscriptMessage(role="user", parts=(UriPart(uri="https://a.example/x"),)),))
    with pytest.raises(ConversionError, match="image_links"):
        from_transcript(link, "autogen")
    assert from_transcript(link, "autogen", accept=["image_links"]).state["messages"]
    hosted = replace(call("s", "web_search"), hosted=True)
    with pytest.raises(ConversionError, match="provider carries out"):
        from_transcript(Transcript(messages=(user(), asked(hosted))), "crewai")
    dicts = Transcript(messages=({"role": "user"},))  # type: ignore[arg-type]  # it is refused
    with pytest.raises(UsageError, match="messages_of_chat"):
        from_transcript(dicts, "crewai")
    for name in ("agent_id", "session_id"):
        with pytest.raises(UsageError, match=name):
            from_transcript(told, "langgraph", **{name: 3})
    for bad, says in ((([],), "must be a Transcript"), ((told, "claude_agent"), "not public"), ((told, 3), "the name")):
        with pytest.raises(UsageError, match=says):
            from_transcript(*(*bad, "crewai")[:2])


STATE_KEYS = (
    "messages",
    "session",
    "state",
    "native",
    "values",
    "channel_values",
    "checkpoint",
    "flow",
    "turn",
    "next",
)
WITHIN = (
    *("role", "type", "content", "parts", "contents", "tool_calls", "kind", "part_kind", "author", "source", "text"),
    *("id", "name", "arguments", "function_call", "function_response", "response", "call_id", "tool_call_id", "data"),
)
HOSTILE = st.recursive(
    st.none() | st.integers() | WORDS | st.binary(max_size=3) | st.sampled_from(["user", "assistant", "tool", "text"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WITHIN), inner, max_size=4),
    max_leaves=12,
)
LISTS = st.lists(st.dictionaries(st.sampled_from(WITHIN), HOSTILE, max_size=5), max_size=3)
STATES = st.dictionaries(st.sampled_from(STATE_KEYS), HOSTILE | LISTS, max_size=4) | LISTS.map(
    lambda one: {"messages": one}
)


@settings(deadline=None)
@given(STATES | HOSTILE, st.sampled_from([*Framework]), st.sampled_from(NAMES))
def test_any_state_of_any_framework_gives_a_plan_or_a_documented_error(state, framework, target):
    with SyncClient.memory() as client:
        saved = client.save("a", framework, state, session_id="s")
        try:
            plan = client.resume_as(saved, target, dangling="answer", accept=list(MEASURED))
        except HoldfastError:
            return
        plan.save("b", session_id="t")


THOUGHT = {"part_kind": "thinking", "content": "x", "signature": [{"a": 1}]}
HUGE = [{"type": "ai", "content": "", "tool_calls": [{"id": "a", "name": "f", "args": {"n": 10**5000}}]}]
SAID = {"role": "user", "content": [{"text": "hi"}]}
SIGNED = {"role": "assistant", "content": [{"reasoningContent": {"reasoningText": {"text": "x", "signature": [1]}}}]}
NAMELESS = {"author": {"x": 1}, "content": {"role": "model", "parts": [{"text": "hi"}]}}


@pytest.mark.parametrize(
    ("framework", "state"),
    [
        (
            "pydantic_ai",
            {"messages": [{"kind": "response", "parts": [THOUGHT, {"part_kind": "text", "content": "y"}]}]},
        ),
        ("langgraph", {"channel_values": {"messages": HUGE}}),
        ("strands", {"messages": [SAID, SIGNED]}),
        ("strands", {"messages": [SAID], "agents": {"": {"state": {1: 2}}}}),
        ("google_adk", {"messages": [NAMELESS]}),
        ("custom", {"messages": [{"role": "user", "content": "a\n" * 200_000}]}),
        ("custom", {"messages": [{"role": "user", "content": "x", 7: 8, (1, 2): 3}]}),
        ("custom", {"messages": [{"role": "user", "content": "x", "deep": "[" * 900 + "]" * 900}]}),
        ("custom", {"messages": [{"role": "user", "content": "[" * 900 + "1" + "]" * 900}]}),
        ("custom", {"messages": [{"role": ["user"], "content": [{"type": [1], "text": "x"}]}]}),
        ("custom", {"messages": [{"role": "assistant", "function_call": {"name": [1], "arguments": "[" * 100_000}}]}),
    ],
)
def test_a_state_from_a_stranger_with_odd_types_and_sizes_is_converted(framework, state):
    with SyncClient.memory(on_unknown_type="plain") as client:
        client.save("a", framework, state, session_id="s")
        plan = client.resume_as("s", "anthropic", dangling="answer", accept=list(MEASURED))
        assert plan.messages and plan.save("b")


@given(st.text(max_size=100), st.sets(st.text(max_size=4), max_size=3))
def test_names_and_ids_fit_every_provider_and_stay_apart(name, used):
    assert is_valid_name(valid_name(name))
    assert is_valid_id(valid_id(name, used)) and valid_id(name, used) not in used
    assert valid_name(valid_name(name)) == valid_name(name)
    assert valid_name(name + "!") != valid_name(name)


# -- decisions ---------------------------------------------------------------------------------------------------------


def call(id_: str, name: str = "pay", **arguments: Any) -> ToolCallPart:
    return ToolCallPart(id=id_, name=name, arguments=arguments)


def asked(*calls: ToolCallPart, said: str = "") -> TranscriptMessage:
    return TranscriptMessage(role="assistant", parts=(*([text(said)] if said else []), *calls))


def result(id_: str, content: str = "paid") -> TranscriptMessage:
    return TranscriptMessage(role="tool", parts=(ToolResponsePart(id=id_, content=(text(content),)),))


def user(content: str = "go") -> TranscriptMessage:
    return TranscriptMessage(role="user", parts=(text(content),))


def test_ids_that_are_used_twice_become_two():
    messages, renamed = unique_ids([asked(call("0")), result("0", "one"), asked(call("0")), result("0", "two")])
    first, second = messages[0].tool_calls[0].id, messages[2].tool_calls[0].id
    assert first == "0" and second != "0" and renamed == {"0": second}
    assert messages[3].tool_responses[0].id == second


def test_results_move_to_their_calls_and_parallel_calls_stay_together():
    split = [user(), asked(call("a")), asked(call("b")), user("wait"), result("b", "B"), result("a", "A")]
    ordered, losses = order_messages(split)
    assert [one.role for one in ordered] == ["user", "assistant", "tool", "user"]
    assert [part.id for part in ordered[2].tool_responses] == ["a", "b"]
    assert not losses


def test_a_stray_result_becomes_a_note_and_a_second_one_is_said():
    ordered, losses = order_messages([user(), result("x", "late"), asked(call("a")), result("a"), result("a", "twice")])
    assert "late" in ordered[0].text
    assert [one.kind for one in losses] == ["stray_results", "repeated_results"]


def test_a_call_within_a_stray_result_is_no_call():
    within = ToolResponsePart(id="x", content=(call("y"), text("late")))
    ordered, _ = order_messages([user(), TranscriptMessage(role="assistant", parts=(within,))])
    assert not any(one.tool_calls for one in ordered) and "pay" in ordered[-1].text


def test_a_call_of_odd_arguments_becomes_one_that_quotes_them():
    for odd in ({"n": float("inf")}, {1: 2, "a": 3}, {"when": Decimal("1.5")}, {"deep": [{(1, 2): 3}]}):
        asked_for = Transcript(messages=(user(), asked(ToolCallPart(id="a", name="pay", arguments=odd)), result("a")))
        for name in NAMES:
            moved = convert(asked_for, name)
            assert {one.kind for one in moved.losses} == {"raw_arguments"}, name
            [quoted] = [part for one in read_back(name, moved) for part in one.tool_calls]
            assert quoted.arguments is not None and quoted.arguments.keys() == {"raw_arguments"}
        noted, _ = map_tools(asked_for.messages, read_tools([]), {})
        assert "[called the tool pay with" in noted[1].text


@pytest.mark.slow
def test_a_long_conversation_that_counts_its_calls_from_0_in_each_turn_is_quick():
    turns = [one for _ in range(20_000) for one in (asked(call("0")), result("0"))]
    begun = time.perf_counter()
    messages, _ = unique_ids(turns)
    assert len({one.tool_calls[0].id for one in messages[::2]}) == 20_000
    said = [Transcript(messages=(user("\n".join(f"{word} {n}" for n in range(20_000))),)) for word in ("a", "b")]
    assert len(measure_losses(CODEC, *said)) == 20_000
    assert time.perf_counter() - begun < 60  # with a search in all ids and lines, it took ten minutes


def test_two_turns_of_the_user_become_one_and_the_user_begins():
    ordered, _ = order_messages([asked(said="hello"), user("a"), user("b")])
    assert [one.role for one in ordered] == ["user", "assistant", "user"]
    assert ordered[2].text == "a\n\nb"


@pytest.mark.parametrize("name", NAMES)
def test_what_the_user_says_after_results_is_not_lost(name):
    said = Transcript(messages=(user(), asked(call("a")), result("a"), user("and now?")))
    assert not convert(said, name).losses


def test_handoffs_become_notes_unless_the_target_has_that_tool():
    messages = [user(), asked(call("h", "transfer_to_bob")), result("h", "Transferred"), asked(said="Bob here.")]
    folded, losses = fold_handoffs(messages, ToolMap())
    assert [one.kind for one in losses] == ["handoffs"]
    assert "[handed over to bob]" in folded[1].text
    assert not any(one.tool_calls or one.tool_responses for one in folded)
    adk = [asked(call("h", "transfer_to_agent", agent_name="carol"))]
    assert "carol" in fold_handoffs(adk, ToolMap()).messages[0].text
    assert fold_handoffs(messages, read_tools(["transfer_to_bob"])).messages == messages


@pytest.mark.parametrize(
    ("name", "told", "answer", "is_kept"),
    [
        ("transfer_to_bob", {}, "Successfully transferred to bob", False),  # LangGraph's supervisor
        ("transfer_to_bob", {}, "Transferred to bob, adopting the role of bob immediately.", False),  # AutoGen
        ("transfer_to_bob", {}, '{"assistant": "bob"}', False),  # OpenAI Agents
        ("transfer_to_agent", {"agent_name": "bob"}, "null", False),  # Google ADK
        ("handoff_to_agent", {"agent_name": "bob", "message": "order 42"}, "Handing off to bob", False),  # Strands
        ("handoff_to_user", {"message": "which order?"}, "the one of May", True),
        ("transfer_to_bob", {"reason": "refund of order 42"}, "bob is busy", True),
    ],
)
def test_what_a_handoff_told_is_in_its_note(name, told, answer, is_kept):
    messages = [user(), asked(call("h", name, **told)), result("h", answer), asked(said="Bob here.")]
    folded, losses = fold_handoffs(messages, ToolMap())
    assert [one.kind for one in losses] == ["handoffs"]
    note = folded[1].text
    assert all(value in note for key, value in told.items() if key != "agent_name")
    assert any(answer in one.text for one in folded) == is_kept
    assert not any(one.tool_calls or one.tool_responses for one in folded)


def test_a_transfer_of_money_is_no_handoff():
    paid = [user(), asked(call("t", "transfer_to_savings", amount=100)), result("t", "receipt 7"), asked(said="done")]
    assert fold_handoffs(paid, ToolMap()).messages == paid
    to_bob = [user(), asked(call("t", "transfer_to_account", to="bob", amount=100)), result("t", "receipt 7")]
    assert fold_handoffs(to_bob, ToolMap()).messages == to_bob
    bare = [user(), asked(call("t", "transfer_to_savings")), result("t", "moved 100")]
    assert fold_handoffs(bare, ToolMap(), {"transfer_to_savings"}).messages == bare  # the ledger has its effect


def test_a_tool_that_the_target_lacks_becomes_a_note_that_no_model_can_call():
    messages = [user(), asked(call("a", "search", q="x"), call("b", "pay")), result("a", "found"), result("b")]
    mapped, losses = map_tools(messages, read_tools({"pay": "send_money"}), {})
    assert [one.kind for one in losses] == ["tool_calls"]
    assert [one.name for one in mapped[1].tool_calls] == ["send_money"]
    assert "search" in mapped[1].text and '"q": "x"' in mapped[1].text
    assert mapped[2].role == "user" and "found" in mapped[2].text


def test_parameters_of_the_target_are_compared():
    from holdfast import TargetTool

    def pay(to: str, amount: int) -> str:
        return ""

    messages = [asked(call("a", to="bob", when="now"))]
    _, losses = map_tools(messages, read_tools([pay]), {})
    assert [one.kind for one in losses] == ["tool_schemas", "tool_schemas"]
    schema = {"properties": {"to": {}, "when": {}}, "required": ["to"]}
    assert not map_tools(messages, read_tools([TargetTool(name="pay", schema=schema)]), {}).losses
    hashed = TargetTool(name="pay", schema_hash="b")
    assert [one.kind for one in map_tools(messages, read_tools([hashed]), {"pay": "a"}).losses] == ["tool_schemas"]
    assert not map_tools(messages, read_tools([hashed]), {"pay": "b"}).losses


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (3, "must list the target's tools"),
        ({1: "a"}, "keys are names"),
        ([3], "its name"),
        (["a b"], "letters, digits"),
    ],
)
def test_tools_that_are_none_are_refused(given, says):
    with pytest.raises(HoldfastError, match=says):
        read_tools(given)


def test_the_unfinished_turn_can_be_left_out():
    messages = [user("a"), asked(said="done"), user("b"), asked(call("x"))]
    cut, losses = cut_last_turn(messages, is_finished=False)
    assert cut == messages[:2] and [one.kind for one in losses] == ["unfinished_turn"]
    assert cut_last_turn(messages[:2], is_finished=True).messages == messages[:2]


def test_the_same_conversion_gives_the_same_bytes():
    for name in NAMES:
        states = [CODEC.encode(dict(convert(NAMED, name, OPTIONS).converted.state)) for _ in range(2)]
        assert states[0] == states[1]
