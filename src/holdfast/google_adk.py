"""Agents and apps of Google ADK that continue after a crash: `resumable(agent, session_id=...)`."""

from holdfast.adapters.base.install import require_framework

with require_framework("Google ADK", "google", extra="google-adk"):
    from holdfast.adapters.google_adk.artifact_service import HoldfastArtifactService
    from holdfast.adapters.google_adk.manual import extract, reconstruct
    from holdfast.adapters.google_adk.resumable import ResumableApp, resumable
    from holdfast.adapters.google_adk.session_service import HoldfastSessionService

__all__ = [
    "HoldfastArtifactService",
    "HoldfastSessionService",
    "ResumableApp",
    "extract",
    "reconstruct",
    "resumable",
]
