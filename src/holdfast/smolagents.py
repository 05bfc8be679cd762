"""Agents of smolagents that continue after a crash: `resumable(agent, session_id=...)`."""

from holdfast.adapters.base.install import require_framework

with require_framework("smolagents", "smolagents", "PIL", extra="smolagents"):
    from holdfast.adapters.smolagents.manual import extract, reconstruct
    from holdfast.adapters.smolagents.resumable import ResumableSmolAgent, resumable

__all__ = ["ResumableSmolAgent", "extract", "reconstruct", "resumable"]
