"""AutoGen agents and teams that continue after a crash: `resumable(team, session_id=...)`."""

from holdfast.adapters.base.install import require_framework

with require_framework("AutoGen", "autogen_agentchat", "autogen_core", extra="autogen"):
    from holdfast.adapters.autogen.manual import extract, reconstruct
    from holdfast.adapters.autogen.resumable import ResumableTarget, resumable

__all__ = ["ResumableTarget", "extract", "reconstruct", "resumable"]
