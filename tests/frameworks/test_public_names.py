"""What the modules of all frameworks have in common: their names, and the parameters of these."""

from __future__ import annotations

import inspect
from importlib import import_module

import pytest
from framework_environments import EXPECTED, GRAPHS, is_installed

from holdfast.model.framework import Framework

FRAMEWORKS = [name for name in EXPECTED if name not in GRAPHS]
ENTRY_POINTS = {  # of the objects that `resumable` returns: those of the framework
    "ag2": {"ResumableAG2Agent": ("ask", "run"), "ResumableReply": ("ask", "run")},
    "agent_framework": {"ResumableChatAgent": ("run",), "ResumableWorkflow": ("run",)},
    "autogen": {"ResumableTarget": ("run", "run_stream")},
    "claude_agent": {"ResumableClaude": ("query",), "ResumableClaudeClient": ("query",)},
    "crewai": dict.fromkeys(("ResumableCrew", "ResumableFlow", "ResumableCrewAgent"), ("kickoff", "kickoff_async")),
    "google_adk": {"ResumableApp": ("run", "run_async")},
    "haystack": dict.fromkeys(("ResumableAgent", "ResumablePipeline"), ("run", "run_async")),
    "llama_index": {"ResumableLlamaWorkflow": ("run",)},
    "openai_agents": {"ResumableOpenAIAgent": ("run", "run_streamed", "run_sync")},
    "pydantic_ai": {"ResumablePydanticAgent": ("iter", "run", "run_stream", "run_sync")},
    "smolagents": {"ResumableSmolAgent": ("run",)},
    "strands": dict.fromkeys(
        ("ResumableStrandsAgent", "ResumableStrandsTeam"), ("__call__", "invoke_async", "stream_async")
    ),
}
SEAMS = {  # classes for those who want the framework's own interface to a store
    "ag2": ("HoldfastStorage",),
    "agent_framework": ("HoldfastCheckpointStorage", "HoldfastHistoryProvider"),
    "claude_agent": ("HoldfastSessionStore",),
    "crewai": ("HoldfastPersistence",),
    "google_adk": ("HoldfastArtifactService", "HoldfastSessionService"),
    "haystack": ("HoldfastSnapshots",),
    "openai_agents": ("HoldfastSession", "HoldfastSnapshot"),
    "pydantic_ai": ("HoldfastConversationStore", "HoldfastDurability"),
    "strands": ("HoldfastStorage",),
}
OPTIONS = {"session_id": inspect.Parameter.empty, "store": None, "agent_id": None, "workspace": None, "tools": None}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_functions_of_a_framework_have_the_parameters_of_all_others(framework):
    if not is_installed(framework):
        pytest.skip(f"{framework} is not installed: `make framework-tests` installs it")
    module = import_module(f"holdfast.{framework}")
    assert {"resumable", "extract", "reconstruct"} <= set(module.__all__)
    assert Framework(framework)

    target, *options = inspect.signature(module.resumable).parameters.values()
    assert target.name == "target"
    assert {one.name: one.default for one in options} == OPTIONS
    assert {one.kind for one in options} == {inspect.Parameter.KEYWORD_ONLY}

    native, *about = inspect.signature(module.extract).parameters.values()
    assert native.name == "native"
    assert {"agent_id", "session_id", "context"} <= {one.name for one in about}
    assert {one.kind for one in about} == {inspect.Parameter.KEYWORD_ONLY}
    assert [*inspect.signature(module.reconstruct).parameters][:2] == ["checkpoint", "target"]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_entry_points_take_the_id_of_a_turn_and_seams_are_public(framework):
    if not is_installed(framework):
        pytest.skip(f"{framework} is not installed: `make framework-tests` installs it")
    module = import_module(f"holdfast.{framework}")
    assert set(SEAMS.get(framework, ())) <= set(module.__all__)
    for target, names in ENTRY_POINTS[framework].items():
        for name in names:
            turn = inspect.signature(getattr(getattr(module, target), name)).parameters["turn"]
            assert (turn.kind, turn.default) == (inspect.Parameter.KEYWORD_ONLY, None)
