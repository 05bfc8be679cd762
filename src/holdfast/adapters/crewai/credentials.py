"""Removes credentials from states before they are stored: by the type of a value, and by its name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from crewai.llms.base_llm import BaseLLM
from pydantic import SecretBytes, SecretStr

_NAME = re.compile(r"(api_?key|(access|auth|bearer)_?token|client_?secret|password|authorization)$", re.IGNORECASE)
_TYPES = (SecretStr, SecretBytes, BaseLLM)


def strip_credentials(value: Any) -> Any:
    """Return a copy without secrets, models, and values whose name says that they are credentials.

    What is left out, a flow has from its own program: a restored state keeps the values that the flow
    was made with.
    """
    if isinstance(value, Mapping):
        return {
            name: strip_credentials(one)
            for name, one in value.items()
            if not isinstance(one, _TYPES) and not (isinstance(name, str) and _NAME.search(name))
        }
    if isinstance(value, list):
        return [strip_credentials(one) for one in value if not isinstance(one, _TYPES)]
    return value
