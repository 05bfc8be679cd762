"""Leaves credentials out of what an adapter stores: by the name of a value, and by its type."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from typing import Any

from holdfast.errors import HoldfastWarning

_NAME = re.compile(
    r"(^|_)(api_?key|(private|secret|access)_?key|client_?secret|secret|passw(or)?d|passphrase|authorization"
    r"|(access|auth|bearer|refresh|id|session)token|token)$"
)
_OTHER_TOKENS = re.compile(r"(^|_)(page|next|sync|continuation|cursor|bos|eos|pad|max|min|start|end|stop)_token$")
_NEW_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+")


def is_credential(name: object) -> bool:
    """Return whether a value's name says that it is a credential: `api_key`, `accessToken`."""
    if not isinstance(name, str):
        return False
    plain = _NEW_WORD.sub("_", name).lower()
    return bool(_NAME.search(plain)) and not _OTHER_TOKENS.search(plain)


def strip_credentials(value: Any, *, types: tuple[type[Any], ...] = (), kept: tuple[str, ...] = ()) -> Any:
    """Return a copy of plain data without credentials; values with the names `kept` stay as they are."""
    if isinstance(value, Mapping):
        return {
            name: item if name in kept else strip_credentials(item, types=types, kept=kept)
            for name, item in value.items()
            if not isinstance(item, types) and (item is None or not is_credential(name))
        }
    if isinstance(value, list | tuple):
        return type(value)(
            strip_credentials(item, types=types, kept=kept) for item in value if not isinstance(item, types)
        )
    return value


def strip_state(state: Mapping[str, Any], subject: str, *, kept: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a program's own state without credentials; warn, as its next turn lacks them."""
    left = ", ".join(sorted(_names_of_credentials(state, kept)))
    if not left:
        return dict(state)
    warnings.warn(
        f"the {subject} has values named as credentials ({left:.200}), which are not stored: the next turn begins "
        "without them. Read them where they are used, such as from the environment",
        HoldfastWarning,
        stacklevel=2,
    )
    stripped: dict[str, Any] = strip_credentials(state, kept=kept)
    return stripped


def _names_of_credentials(value: Any, kept: tuple[str, ...]) -> set[str]:
    if isinstance(value, list | tuple):
        return {name for item in value for name in _names_of_credentials(item, kept)}
    if not isinstance(value, Mapping):
        return set()
    own = {str(name) for name, item in value.items() if item is not None and is_credential(name)}
    inner = [item for name, item in value.items() if name not in kept and str(name) not in own]
    return own | {name for item in inner for name in _names_of_credentials(item, kept)}
