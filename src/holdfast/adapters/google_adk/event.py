"""Events, messages and answers of ADK as plain data, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from google.adk.events.event import Event
from google.adk.models.llm_response import LlmResponse
from google.genai import types
from pydantic import BaseModel

from holdfast.adapters.base.credentials import strip_credentials, strip_state
from holdfast.errors import UsageError

_CREDENTIALS = ("rawauthcredential", "exchangedauthcredential")  # of ADK's questions for credentials
_STATE_DELTA = "statedelta"  # of an event, what it changes in the session's state
_SECRETS = (
    *("accesstoken", "additionalheaders", "apikey", "authcode", "authresponseuri", "clientsecret", "codeverifier"),
    *("idtoken", "password", "privatekey", "privatekeyid", "refreshtoken", "token"),
)


def dump_model(model: BaseModel) -> dict[str, Any]:
    """Return a model of ADK as plain data: bytes stay bytes, what is not set is left out."""
    dumped: dict[str, Any] = to_plain(model.model_dump(exclude_none=True, exclude_defaults=True))
    return dumped


def dump_event(event: Event) -> dict[str, Any]:
    return {**dump_model(event), "id": event.id, "timestamp": event.timestamp}


def load_event(dumped: Mapping[str, Any]) -> Event:
    return Event.model_validate(dict(dumped))


def load_events(dumped: Sequence[Mapping[str, Any]]) -> list[Event]:
    return [load_event(item) for item in dumped]


def load_response(dumped: Mapping[str, Any]) -> LlmResponse:
    return LlmResponse.model_validate(dict(dumped))


def as_content(message: Any) -> types.Content:
    """Return a message of the user; a text stands for one with that text."""
    if isinstance(message, str):
        return types.Content(role="user", parts=[types.Part(text=message)])
    if not isinstance(message, types.Content):
        raise UsageError(f"new_message is a {type(message).__name__}: it must be a types.Content, or a text")
    return message


def dump_message(message: types.Content) -> Any:
    """Return a message as plain data; as its text, if it has nothing else."""
    parts = message.parts or []
    if len(parts) == 1 and dump_model(parts[0]).keys() == {"text"}:
        return parts[0].text
    return dump_model(message)


def to_plain(value: Any) -> Any:
    """Return plain data of what `model_dump` leaves as it is: members of enums, sets, nested models.

    Credentials lose their secrets, and changes of the state its credentials.
    """
    if isinstance(value, Mapping):
        return {str(name): _plain_field(name, item) for name, item in value.items()}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(to_plain(item) for item in value)
    return dump_model(value) if isinstance(value, BaseModel) else value


def plain_state(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values of a session's state as plain data, without credentials."""
    return strip_state({name: to_plain(value) for name, value in values.items()}, "state of the session")


def _plain_field(name: object, value: Any) -> Any:
    simple = _simplify(name)
    if simple in _CREDENTIALS:
        return _without_secrets(value)
    plain = to_plain(value)
    return strip_credentials(plain) if simple == _STATE_DELTA else plain


def _without_secrets(credential: Any) -> Any:
    """Return a credential without what must not be stored; a client's id and addresses stay."""
    plain = to_plain(credential)
    if isinstance(plain, dict):
        return {name: _without_secrets(value) for name, value in plain.items() if _simplify(name) not in _SECRETS}
    return [_without_secrets(item) for item in plain] if isinstance(plain, list) else plain


def _simplify(name: object) -> str:
    return str(name).replace("_", "").lower()  # ADK writes them in two ways
