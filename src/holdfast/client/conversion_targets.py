"""The frameworks and message lists that a conversation can move to, and what each can't keep.

To add a framework, write `from_transcript` in its adapter and add an entry to `TARGETS`.
tests/adapters/test_conversions.py measures that the entry says exactly what is lost, and
docs/changing-frameworks.md prints it.
"""

from __future__ import annotations

from typing import Any

from holdfast.errors import UsageError
from holdfast.model.conversion_target import ConversionTarget
from holdfast.model.framework import Framework

_CHAT = frozenset(("reasoning", "error_flags", "result_images", "result_files", "files", "link_types"))
_ITEMS = frozenset(("reasoning", "error_flags", "parallel_calls", "authors", "link_types"))
TARGETS: dict[str, ConversionTarget] = {
    target.name: target
    for target in (
        ConversionTarget(name="langgraph", framework=Framework.LANGGRAPH, title="LangGraph", session_prefix="lg/"),
        ConversionTarget(name="crewai", framework=Framework.CREWAI, title="CrewAI", loses=_CHAT),
        ConversionTarget(
            name="autogen",
            framework=Framework.AUTOGEN,
            title="AutoGen",
            loses=frozenset(
                (
                    "text_with_calls",
                    "result_images",
                    "result_files",
                    "files",
                    "image_links",
                    "media_types",
                )
            ),
        ),
        ConversionTarget(
            name="openai_agents",
            framework=Framework.OPENAI_AGENTS,
            title="OpenAI Agents",
            loses=_ITEMS,
        ),
        ConversionTarget(
            name="pydantic_ai", framework=Framework.PYDANTIC_AI, title="Pydantic AI", loses=frozenset(("authors",))
        ),
        ConversionTarget(
            name="google_adk", framework=Framework.GOOGLE_ADK, title="Google ADK", loses=frozenset(("authors",))
        ),
        ConversionTarget(name="agent_framework", framework=Framework.AGENT_FRAMEWORK, title="agent-framework"),
        ConversionTarget(
            name="strands",
            framework=Framework.STRANDS,
            title="Strands",
            loses=frozenset(("image_links", "authors")),
        ),
        ConversionTarget(
            name="haystack", framework=Framework.HAYSTACK, title="Haystack", loses=frozenset(("image_links",))
        ),
        ConversionTarget(
            name="openai_chat", framework=Framework.CUSTOM, title="OpenAI chat list", loses=_CHAT, shape="openai_chat"
        ),
        ConversionTarget(
            name="open_responses",
            framework=Framework.CUSTOM,
            title="Open Responses list",
            loses=_ITEMS,
            shape="open_responses",
        ),
        ConversionTarget(
            name="anthropic",
            framework=Framework.CUSTOM,
            title="Anthropic list",
            loses=frozenset(("reasoning", "authors", "link_types")),
            shape="anthropic",
        ),
        ConversionTarget(name="ag2", framework=Framework.AG2, title="AG2", loses=frozenset(("reasoning", "authors"))),
        ConversionTarget(
            name="smolagents",
            framework=Framework.SMOLAGENTS,
            title="smolagents",
            loses=frozenset(("reasoning", "error_flags", "image_links", "files", "result_files", "authors")),
        ),
        ConversionTarget(
            name="llama_index",
            framework=Framework.LLAMA_INDEX,
            title="LlamaIndex Workflows",
            opaque="a workflow has no conversation of its own, its steps decide what a model reads",
        ),
        ConversionTarget(
            name="claude_agent",
            framework=Framework.CLAUDE_AGENT,
            title="Claude Agent SDK",
            opaque="its transcript is a file of the bundled command line, whose format is not public",
        ),
    )
}
_ALIASES = {"custom": "openai_chat", "claude": "claude_agent", "openai": "openai_chat", "responses": "open_responses"}


def find_target(name: Any) -> ConversionTarget:
    """Return the target of that name; raise `UsageError` for one that is unknown or can't be one."""
    if not isinstance(name, str):
        raise UsageError(f"framework is a {type(name).__name__}: it must be the name of one, such as 'crewai'")
    target = TARGETS.get(_ALIASES.get(str(name), str(name)))
    known = ", ".join(item.name for item in TARGETS.values() if item.opaque is None)
    if target is None:
        raise UsageError(f"a session can't be converted to {name!r:.60}: the targets are {known}")
    if target.opaque is not None:
        raise UsageError(
            f"a session can't be converted to {target.name}: {target.opaque}. Nothing was changed. Choose one of "
            f"{known}; or give the new agent a summary of the conversation as its first message"
        )
    return target


def prefix_of(framework: Framework) -> str:
    """Return what the names of a framework's sessions begin with."""
    return next((target.session_prefix for target in TARGETS.values() if target.framework is framework), "")
