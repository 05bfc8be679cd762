"""Crews, flows and agents of CrewAI that continue after a crash: `resumable(crew, session_id=...)`."""

from holdfast.adapters.base.install import require_framework

with require_framework("CrewAI", "crewai", "pydantic", extra="crewai"):
    from holdfast.adapters.crewai.flow import ResumableFlow
    from holdfast.adapters.crewai.manual import extract, reconstruct
    from holdfast.adapters.crewai.persistence import HoldfastPersistence
    from holdfast.adapters.crewai.resumable import ResumableCrew, ResumableCrewAgent, resumable

__all__ = [
    "HoldfastPersistence",
    "ResumableCrew",
    "ResumableCrewAgent",
    "ResumableFlow",
    "extract",
    "reconstruct",
    "resumable",
]
