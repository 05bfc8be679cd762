"""Parameters and bodies of requests: declared by each route, checked before it runs.

A text in a URL may be given plain or as a JSON string. The latter can hold anything: a slash, `..`,
nothing at all, or a lone surrogate.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

from holdfast.web.answer import RefusedRequest

LONGEST_TEXT = 64 * 1024
DEEPEST = 64


class Parameter(NamedTuple):
    """A parameter of the query: `kind` is text, number, flag, choice or choices."""

    name: str
    kind: str = "text"
    about: str = ""
    default: Any = None
    least: int = 0
    most: int = 1000
    choices: Sequence[str] = ()


class BodyField(NamedTuple):
    """A field of a body: `kind` is text, number, flag, texts, object, value, or choice."""

    name: str
    kind: str = "text"
    about: str = ""
    required: bool = False
    choices: Sequence[str] = ()


def _make_bad_request(message: str) -> RefusedRequest:
    return RefusedRequest(400, "bad_request", message, "Correct the request; /api/v1/openapi.json describes it")


def read_text(raw: str, subject: str) -> str:
    """Return a text from a URL with its escapes."""
    try:
        text = unquote(raw, errors="strict") if "%" in raw else raw
        text.encode("latin-1" if "%" not in raw else "utf-8", "surrogatepass")
    except UnicodeError as error:
        raise _make_bad_request(f"{subject} is no UTF-8 behind its percent signs") from error
    if text.startswith('"'):
        try:
            text = json.loads(text)
        except ValueError as error:
            raise _make_bad_request(f'{subject} begins with " and is no JSON string') from error
        if not isinstance(text, str):  # cannot be: it begins with a quote
            raise _make_bad_request(f"{subject} is no text")
    if len(text) > LONGEST_TEXT:
        raise _make_bad_request(f"{subject} has more than {LONGEST_TEXT} characters")
    return text


def read_query(raw: bytes, declared: Sequence[Parameter]) -> dict[str, Any]:
    """Return the values of the declared parameters. Raise if one is unknown, repeated or invalid."""
    known = {parameter.name: parameter for parameter in declared}
    given: dict[str, str] = {}
    for part in raw.decode("latin-1").split("&"):
        if not part:
            continue
        name, _, value = part.partition("=")
        name = unquote(name.replace("+", " "), errors="replace")
        if name not in known:
            raise _make_bad_request(f"there is no parameter {name!r:.60} here; there are: {', '.join(known) or 'none'}")
        if name in given:
            raise _make_bad_request(f"the parameter {name} is given twice")
        given[name] = value.replace("+", " ")
    return {
        parameter.name: _parameter(parameter, given[parameter.name]) if parameter.name in given else parameter.default
        for parameter in declared
    }


def _parameter(parameter: Parameter, raw: str) -> Any:
    text = read_text(raw, parameter.name)
    if parameter.kind == "text":
        return text
    if parameter.kind == "number":
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise _make_bad_request(f"{parameter.name} is {text!r:.60}: it must be a whole number")
        if not parameter.least <= int(text) <= parameter.most:
            raise _make_bad_request(
                f"{parameter.name} is {text}: it must be from {parameter.least} to {parameter.most}"
            )
        return int(text)
    if parameter.kind == "flag":
        if text not in ("true", "false"):
            raise _make_bad_request(f"{parameter.name} is {text!r:.60}: it must be true or false")
        return text == "true"
    chosen = text.split(",") if parameter.kind == "choices" else [text]
    for choice in chosen:
        if choice not in parameter.choices:
            raise _make_bad_request(
                f"{parameter.name} is {choice!r:.60}: it must be one of {', '.join(parameter.choices)}"
            )
    return tuple(chosen) if parameter.kind == "choices" else text


def read_body(raw: bytes, declared: Sequence[BodyField]) -> dict[str, Any]:
    """Return the fields of a JSON body; those left out or null are None."""
    try:
        # A number as text: Python refuses those of more than 4,300 digits.
        body = json.loads(raw or b"{}", parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise _make_bad_request(f"the body is no JSON: {error!s:.200}") from error
    if not isinstance(body, dict):
        raise _make_bad_request("the body must be a JSON object")
    _refuse_depth(body)
    known = {body_field.name: body_field for body_field in declared}
    for name in body:
        if name not in known:
            raise _make_bad_request(f"there is no field {name!r:.60} here; there are: {', '.join(known) or 'none'}")
    return {body_field.name: _field(body_field, body.get(body_field.name)) for body_field in declared}


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _refuse_depth(body: Any) -> None:
    level = [body]
    for _ in range(DEEPEST):
        level = [
            item
            for value in level
            if isinstance(value, dict | list)
            for item in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return
    raise _make_bad_request(f"the body is nested more than {DEEPEST} deep")


def _field(field: BodyField, value: Any) -> Any:
    if value is None:
        if field.required:
            raise _make_bad_request(f"the body needs {field.name}: {field.about}")
        return False if field.kind == "flag" else None
    is_right: dict[str, Callable[[], bool]] = {
        "text": lambda: isinstance(value, str),
        "number": lambda: isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53,
        "flag": lambda: isinstance(value, bool),
        "texts": lambda: isinstance(value, list) and all(isinstance(text, str) for text in value),
        "object": lambda: isinstance(value, dict),
        "choice": lambda: value in field.choices if isinstance(value, str) else False,
        "value": lambda: True,
    }
    if not is_right[field.kind]():
        wanted = f"one of {', '.join(field.choices)}" if field.kind == "choice" else f"a {field.kind}"
        raise _make_bad_request(f"the field {field.name} must be {wanted}")
    return value


class Ask(NamedTuple):
    """A checked request: the texts of its path, its query, its body, and its Idempotency-Key."""

    path: Mapping[str, str]
    query: Mapping[str, Any]
    body: Mapping[str, Any]
