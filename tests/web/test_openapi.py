"""The OpenAPI document describes the routes that there are, and no other."""

from __future__ import annotations

import re

from web_site import Site

from holdfast.web.application import ROUTES
from holdfast.web.endpoint import BASE


def test_the_document_describes_each_route_with_its_parameters(site: Site):
    document = site.get("/openapi.json")
    described = {
        (path, method.upper()): operation
        for path, found in document["paths"].items()
        for method, operation in found.items()
    }
    served = {(BASE + one.path, one.method): one for one in ROUTES}
    extra = {(f"{BASE}/events", "GET"), (f"{BASE}/openapi.json", "GET")}
    assert described.keys() == served.keys() | extra
    for address, one in served.items():
        found = described[address]
        names = {(parameter["in"], parameter["name"]) for parameter in found["parameters"]}
        wanted = {("query", parameter.name) for parameter in one.query} | {
            ("path", name) for name in re.findall(r"{(\w+)}", one.path)
        }
        assert wanted == names - {("header", "Idempotency-Key")}
        if one.body is not None:
            schema = found["requestBody"]["content"]["application/json"]["schema"]
            assert schema["properties"].keys() == {field.name for field in one.body}
            assert "dry_run" in schema["properties"]
    assert not {method for _, method in described} - {"GET", "POST"}


def test_every_described_route_is_there(site: Site):
    for path, found in site.get("/openapi.json")["paths"].items():
        if path.endswith(("/events", "/verify")):
            continue
        address = re.sub(r"{\w+}", "nothing", path)
        answer = site.http.get(address) if "get" in found else site.http.post(address, json={})
        assert answer.status_code in (200, 400, 404, 409)
        assert answer.json().get("error") != "not_found"


def test_each_change_is_refused_by_a_read_only_page_or_plans():
    changing = {one.path for one in ROUTES if one.changes}
    posts = {one.path for one in ROUTES if one.body is not None}
    assert posts - changing == {"/restore/plan", "/retain/plan"}
