"""Agents and workflows of Microsoft agent-framework that continue after a crash: `resumable`."""

from holdfast.adapters.base.install import require_framework

with require_framework("Microsoft agent-framework", "agent_framework", extra="agent-framework"):
    from holdfast.adapters.agent_framework.checkpoint_storage import HoldfastCheckpointStorage
    from holdfast.adapters.agent_framework.history import HoldfastHistoryProvider
    from holdfast.adapters.agent_framework.manual import extract, reconstruct
    from holdfast.adapters.agent_framework.resumable import ResumableChatAgent, resumable
    from holdfast.adapters.agent_framework.workflow import ResumableWorkflow

__all__ = [
    "HoldfastCheckpointStorage",
    "HoldfastHistoryProvider",
    "ResumableChatAgent",
    "ResumableWorkflow",
    "extract",
    "reconstruct",
    "resumable",
]
