"""Agents and restarts for the tests of the OpenAI Agents SDK."""

from __future__ import annotations

from typing import Any

from agents.testing import ScriptedModel

from holdfast.adapters.base import session as sessions


def restart() -> None:
    """Forget what this process has finished, as a new process would."""
    sessions._finished.clear()


class Killed(BaseException):
    """Stands for the end of the process."""


def scripted(*answers: Any) -> ScriptedModel:
    return ScriptedModel([[one] if not isinstance(one, list) else one for one in answers])
