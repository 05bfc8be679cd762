"""The agent frameworks that a checkpoint can come from."""

from __future__ import annotations

from enum import StrEnum

from holdfast.errors import UsageError


class Framework(StrEnum):
    LANGGRAPH = "langgraph"
    CREWAI = "crewai"
    AUTOGEN = "autogen"
    OPENAI_AGENTS = "openai_agents"
    PYDANTIC_AI = "pydantic_ai"
    GOOGLE_ADK = "google_adk"
    AGENT_FRAMEWORK = "agent_framework"
    LLAMA_INDEX = "llama_index"
    STRANDS = "strands"
    AG2 = "ag2"
    HAYSTACK = "haystack"
    SMOLAGENTS = "smolagents"
    CLAUDE_AGENT = "claude_agent"
    CLAUDE = "claude_agent"  # the former name, an alias
    CUSTOM = "custom"

    @classmethod
    def _missing_(cls, value: object) -> Framework | None:
        return cls.CLAUDE_AGENT if value == "claude" else None  # checkpoints of before have the former name

    @classmethod
    def of(cls, value: Framework | str) -> Framework:
        """Return the member for a member or its string. The error for an unknown one lists the known ones."""
        if type(value) is cls:
            return value
        try:
            return cls(value)
        except ValueError:
            known = ", ".join(member.value for member in cls)
            raise UsageError(
                f"unknown framework {value!r}; known are: {known}. Use 'custom' for your own loop"
            ) from None
