"""Agents of AG2 that continue after a crash: `resumable(agent, session_id=...)`."""

from holdfast.adapters.base.install import require_framework

with require_framework("AG2", "ag2", extra="ag2"):
    from holdfast.adapters.ag2.manual import extract, reconstruct
    from holdfast.adapters.ag2.resumable import ResumableAG2Agent, ResumableReply, ResumableRun, resumable
    from holdfast.adapters.ag2.storage import HoldfastEventStorage as HoldfastStorage

__all__ = [
    "HoldfastStorage",
    "ResumableAG2Agent",
    "ResumableReply",
    "ResumableRun",
    "extract",
    "reconstruct",
    "resumable",
]
