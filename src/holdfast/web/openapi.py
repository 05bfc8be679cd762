"""The OpenAPI document of the API, made from the table of its routes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from holdfast.web.endpoint import BASE, Endpoint
from holdfast.web.request import BodyField, Parameter

ERRORS = {
    "400": "An invalid parameter or body.",
    "401": "No valid cookie or bearer token.",
    "403": "Another origin, or a read-only server.",
    "404": "Nothing of that name.",
    "409": "A conflict: something changed first.",
    "410": "The checkpoint has expired.",
    "413": "The body is too large.",
    "415": "The body is no JSON.",
    "421": "The server is not known by that name.",
    "422": "Damaged, or of a newer version.",
    "423": "An approval is pending.",
    "503": "The store is busy.",
}
ONLY_OF_CHANGES = ("403", "409", "413", "415")
ERROR = {
    "type": "object",
    "required": ["error", "message", "next"],
    "properties": {
        "error": {"type": "string"},
        "message": {"type": "string"},
        "next": {"type": ["string", "null"]},
        "did_you_mean": {"type": "array", "items": {"type": "string"}},
    },
}
_KINDS: dict[str, dict[str, Any]] = {
    "text": {"type": "string"},
    "number": {"type": "integer", "minimum": 0},
    "flag": {"type": "boolean"},
    "texts": {"type": "array", "items": {"type": "string"}},
    "object": {"type": "object"},
    "value": {},
}


def describe(routes: Sequence[Endpoint]) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(BASE + route.path, {})[route.method.lower()] = _operation(route)
    paths[f"{BASE}/openapi.json"] = {"get": _describe_plain("This document.", "application/json", {"type": "object"})}
    from holdfast.web.events import PARAMETERS

    stream = _describe_plain(
        "Saves, handoffs, approvals and operations as they happen.", "text/event-stream", {"type": "string"}
    )
    stream["parameters"] = [_parameter(parameter) for parameter in PARAMETERS]
    paths[f"{BASE}/events"] = {"get": stream}
    return {
        "openapi": "3.1.0",
        "info": {"title": "holdfast", "version": "1", "description": "A store of checkpoints of AI agents."},
        "security": [{"bearer": []}, {"cookie": []}],
        "paths": paths,
        "components": {
            "schemas": {"Error": ERROR},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": "holdfast-PORT"},
            },
        },
    }


def _describe_plain(about: str, media: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "summary": about,
        "responses": {"200": {"description": "The answer.", "content": {media: {"schema": schema}}}, **_errors(())},
    }


def _errors(left_out: Sequence[str]) -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {
        status: {"description": about, "content": content} for status, about in ERRORS.items() if status not in left_out
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    is_file = endpoint.path.endswith("/files/{path}")
    media = "application/octet-stream" if is_file else "application/json"
    found: dict[str, Any] = {
        "summary": endpoint.about,
        "operationId": f"{endpoint.method.lower()}_{re.sub(r'[^a-z]+', '_', endpoint.path).strip('_')}",
        "parameters": [
            *(_segment(name) for name in re.findall(r"{(\w+)}", endpoint.path)),
            *(_parameter(parameter) for parameter in endpoint.query),
        ],
        "responses": {
            "200": {
                "description": "The answer.",
                "content": {media: {"schema": {} if is_file else {"type": "object"}}},
            },
            **_errors(() if endpoint.body is not None else ONLY_OF_CHANGES),
        },
    }
    if endpoint.body is not None:
        key = {
            "name": "Idempotency-Key",
            "in": "header",
            "schema": {"type": "string", "minLength": 1, "maxLength": 200},
        }
        found["parameters"].append(key)
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": _body(endpoint.body)}}}
    return found


def _segment(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _parameter(parameter: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = dict(_KINDS.get(parameter.kind, {"type": "string"}))
    if parameter.kind == "number":
        schema |= {"minimum": parameter.least, "maximum": parameter.most}
    if parameter.kind == "choice":
        schema["enum"] = list(parameter.choices)
    if parameter.kind == "choices":
        schema["description"] = f"One or more of {', '.join(parameter.choices)}, with commas between them."
    if parameter.default is not None:
        schema["default"] = ",".join(parameter.default) if isinstance(parameter.default, tuple) else parameter.default
    return {"name": parameter.name, "in": "query", "description": parameter.about, "schema": schema}


def _body(fields: Sequence[BodyField]) -> dict[str, Any]:
    properties = {}
    for field in fields:
        schema = dict(_KINDS.get(field.kind, {"type": "string"}))
        if field.kind == "choice":
            schema["enum"] = list(field.choices)
        if not field.required and "type" in schema:
            schema["type"] = [schema["type"], "null"]
            if "enum" in schema:
                schema["enum"] = [*schema["enum"], None]
        properties[field.name] = {**schema, "description": field.about}
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [field.name for field in fields if field.required],
        "properties": properties,
    }
