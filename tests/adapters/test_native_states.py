"""Conversations in each framework's own form: all of it is read, and lost only as the table says."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from conversations import NAMES, OPTIONS, convert, read_back
from native_states import ARGUMENTS, ASKED, DONE, FAILED, FOUND, IMAGE, LONG_NAME, NATIVE, SYSTEM, THOUGHT

from holdfast import SyncClient
from holdfast.client.conversion_targets import TARGETS
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.conversation import BlobPart, Transcript
from holdfast.model.conversion_target import ALWAYS_LOST
from holdfast.model.loss import MEASURED
from holdfast.model.transcript import write_object
from holdfast.model.transcript_facets import digest_of, list_facets
from holdfast.model.transcript_moves import shorten_names
from holdfast.model.transcript_order import find_disorder
from holdfast.transcript import to_transcript

PICTURE = digest_of(BlobPart(mime_type="image/png", data=IMAGE))
EXPECTED = {
    "instructions": [["system", SYSTEM]],
    "text": [["user", ASKED], ["assistant", DONE]],
    "reasoning": [THOUGHT],
    "arguments": [write_object(ARGUMENTS), "{}"],
    "tool_names": ["lookup", LONG_NAME],
    "results": [FOUND, FAILED],
    "error_flags": ["c2"],
    "images": [PICTURE],
}


def read(name: str) -> Transcript:
    framework, make_state, _ = NATIVE[name]
    return to_transcript(
        Checkpoint(checkpoint_id="", agent_id="", session_id="", framework=framework, execution_state=make_state())
    )


def test_every_framework_and_every_list_has_a_native_state():
    assert {*NATIVE, "langgraph"} == {*TARGETS, "langchain"}


@pytest.mark.parametrize("name", NATIVE)
def test_everything_that_the_form_has_is_read(name):
    facets = list_facets(read(name))
    missing = NATIVE[name][2]
    for kind, values in EXPECTED.items():
        assert [one.value for one in facets[kind]] == ([] if kind in missing else values), kind
    assert bool(facets["reasoning_signatures"]) == ("reasoning_signatures" not in missing)
    assert not facets["other_parts"] and not facets["raw_arguments"]


@pytest.mark.parametrize(("source", "target"), list(product(NATIVE, NAMES)), ids=str)
def test_every_native_state_moves_and_loses_what_the_table_says(source, target):
    here = replace(read(source), messages=tuple(shorten_names(read(source).messages)[0]))
    moved = convert(here, target)
    facets = list_facets(here)
    expected = {kind for kind in TARGETS[target].loses | ALWAYS_LOST if facets[kind]} - {
        "media_types",
        "text_with_calls",
    }
    if target == "google_adk" and {one.value[1] for one in facets["authors"]} <= {OPTIONS.agent_id}:
        expected -= {"authors"}
    assert {one.kind for one in moved.losses} == expected
    assert find_disorder(moved.fitted.transcript.messages) is None
    there = list_facets(read_back(target, moved))
    for kind in ("arguments", "tool_names", "results", "images"):
        assert [one.value for one in there[kind]] == [one.value for one in facets[kind]], kind
    if "parallel_calls" not in expected:
        assert [one.value for one in there["parallel_calls"]] in ([2], [one.value for one in facets["parallel_calls"]])


@pytest.mark.parametrize("name", NATIVE)
def test_a_client_moves_it_and_says_every_loss(name):
    framework, make_state, _ = NATIVE[name]
    with SyncClient.memory(on_unknown_type="plain") as client:
        client.save("a", framework, make_state(), session_id="s")
        plan = client.resume_as("s", "openai_chat")
        assert plan.save("b")
    assert {one.kind for one in plan.losses} <= MEASURED.keys()
    assert (LONG_NAME in plan.renamed) and "tool_names" in {one.kind for one in plan.losses}
