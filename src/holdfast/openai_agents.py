"""Agents of the OpenAI Agents SDK that continue after a crash: `resumable(agent, session_id=...)`."""

from holdfast.adapters.base.install import require_framework

with require_framework("the OpenAI Agents SDK", "agents", "openai", extra="openai-agents"):
    from holdfast.adapters.openai_agents.manual import extract, reconstruct
    from holdfast.adapters.openai_agents.resumable import ResumableOpenAIAgent, resumable
    from holdfast.adapters.openai_agents.sandbox import HoldfastSnapshot
    from holdfast.adapters.openai_agents.session import HoldfastSession

__all__ = ["HoldfastSession", "HoldfastSnapshot", "ResumableOpenAIAgent", "extract", "reconstruct", "resumable"]
