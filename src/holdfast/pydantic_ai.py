"""Agents of Pydantic AI that continue after a crash: `resumable(agent, session_id=...)`."""

from holdfast.adapters.base.install import require_framework

with require_framework("Pydantic AI", "pydantic_ai", "pydantic", extra="pydantic-ai"):
    from holdfast.adapters.pydantic_ai.conversation_store import HoldfastConversationStore
    from holdfast.adapters.pydantic_ai.durability import HoldfastDurability
    from holdfast.adapters.pydantic_ai.manual import extract, reconstruct
    from holdfast.adapters.pydantic_ai.resumable import ResumablePydanticAgent, resumable

__all__ = [
    "HoldfastConversationStore",
    "HoldfastDurability",
    "ResumablePydanticAgent",
    "extract",
    "reconstruct",
    "resumable",
]
