"""Agents of Strands that continue after a crash: `resumable(agent, session_id=...)`."""

from holdfast.adapters.base.install import require_framework

with require_framework("Strands", "strands", extra="strands"):
    from holdfast.adapters.strands.manual import extract, reconstruct
    from holdfast.adapters.strands.resumable import ResumableStrandsAgent, ResumableStrandsTeam, resumable
    from holdfast.adapters.strands.storage import HoldfastStorage

__all__ = ["HoldfastStorage", "ResumableStrandsAgent", "ResumableStrandsTeam", "extract", "reconstruct", "resumable"]
