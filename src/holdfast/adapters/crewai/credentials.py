"""Removes credentials from states before they are stored: by the type of a value, and by its name."""

from __future__ import annotations

from typing import Any

from crewai.llms.base_llm import BaseLLM
from pydantic import SecretBytes, SecretStr

from holdfast.adapters.base import credentials

_TYPES = (SecretStr, SecretBytes, BaseLLM)


def strip_credentials(value: Any) -> Any:
    """Return a copy without secrets, models, and values whose name says that they are credentials.

    What is left out, a flow has from its own program: a restored state keeps the values that the flow
    was made with.
    """
    return credentials.strip_credentials(value, types=_TYPES)
