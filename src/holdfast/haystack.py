"""Agents and pipelines of Haystack that continue after a crash: `resumable(agent, session_id=...)`."""

from holdfast.adapters.base.install import require_framework

with require_framework("Haystack", "haystack", extra="haystack"):
    from holdfast.adapters.haystack.manual import extract, reconstruct
    from holdfast.adapters.haystack.resumable import ResumableAgent, ResumablePipeline, resumable
    from holdfast.adapters.haystack.snapshots import HoldfastSnapshots

__all__ = ["HoldfastSnapshots", "ResumableAgent", "ResumablePipeline", "extract", "reconstruct", "resumable"]
