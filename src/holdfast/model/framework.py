"""The agent frameworks a checkpoint can come from."""

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
    CLAUDE = "claude"
    CUSTOM = "custom"

    @classmethod
    def of(cls, value: Framework | str) -> Framework:
        """The member for a member or its string; an unknown one is an error that lists the known."""
        if type(value) is cls:
            return value
        try:
            return cls(value)
        except ValueError:
            known = ", ".join(member.value for member in cls)
            raise UsageError(
                f"unknown framework {value!r}; known are: {known}. Use 'custom' for your own loop"
            ) from None
