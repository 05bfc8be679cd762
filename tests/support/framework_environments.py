"""The environments of the agent frameworks; tests of a missing framework are skipped, or fail in CI."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from pathlib import Path

import pytest

# By the name of our adapter: the distribution that has the framework.
DISTRIBUTIONS = {
    "ag2": "ag2",
    "agent_framework": "agent-framework-core",
    "autogen": "autogen-agentchat",
    "claude_agent": "claude-agent-sdk",
    "crewai": "crewai",
    "google_adk": "google-adk",
    "haystack": "haystack-ai",
    "llama_index": "llama-index-workflows",
    "openai_agents": "openai-agents",
    "pydantic_ai": "pydantic-ai-slim",
    "smolagents": "smolagents",
    "strands": "strands-agents",
}
# Frameworks without an adapter: agents that are LangGraph graphs have a saver, programs of DSPy a recipe.
GRAPHS = {"deepagents": "deepagents", "dspy": "dspy", "langchain": "langchain"}
DISTRIBUTIONS |= GRAPHS
CREWAI = ("crewai",)
ENVIRONMENTS = {  # what the Makefile installs together
    ".venv-frameworks": tuple(name for name in DISTRIBUTIONS if name not in CREWAI),
    ".venv-crewai": CREWAI,
}
# In an environment that is not the Makefile's, each framework that happens to be there is tested.
EXPECTED = ENVIRONMENTS.get(Path(sys.prefix).name, tuple(DISTRIBUTIONS))


def is_installed(framework: str) -> bool:
    try:
        metadata.distribution(DISTRIBUTIONS[framework])
    except metadata.PackageNotFoundError:
        return False
    return True


def require(framework: str) -> None:
    """Skip the calling module if its framework is missing; in CI, fail. Call it before the framework is imported."""
    if is_installed(framework):
        return
    reason = f"{DISTRIBUTIONS[framework]} is not installed in {sys.prefix}: `make framework-tests` installs it"
    if os.environ.get("CI") == "true" and Path(sys.prefix).name in ENVIRONMENTS:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason, allow_module_level=True)


def name_files_of_others(directory: Path) -> list[str]:
    """Return the test files of frameworks that this environment is not meant to have: `test_<framework>*.py`."""
    others = [name for name in DISTRIBUTIONS if name not in EXPECTED]
    return sorted(found.name for name in others for found in directory.glob(f"test_{name}*.py"))
