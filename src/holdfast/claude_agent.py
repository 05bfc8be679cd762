"""Agents of the Claude Agent SDK that continue after a crash: `resumable(options, session_id=...)`."""

from holdfast.adapters.base.install import require_framework

with require_framework("the Claude Agent SDK", "claude_agent_sdk", extra="claude-agent"):
    from holdfast.adapters.claude_agent.client import ResumableClaudeClient
    from holdfast.adapters.claude_agent.manual import extract, reconstruct
    from holdfast.adapters.claude_agent.resumable import ResumableClaude, resumable
    from holdfast.adapters.claude_agent.session_store import HoldfastSessionStore

__all__ = [
    "HoldfastSessionStore",
    "ResumableClaude",
    "ResumableClaudeClient",
    "extract",
    "reconstruct",
    "resumable",
]
