"""Who may ask: names, origins, tokens, methods, sizes, headers. Each test is a hole that another local server had."""

from __future__ import annotations

import contextlib
import logging
import socket

import httpx
import pytest

from holdfast.errors import UsageError
from holdfast.web import Access
from holdfast.web.guard import HEADERS, LARGEST_BODY

STATUS = "/api/v1/status"
UNDO = "/api/v1/undo"


@pytest.fixture
def browser(site):
    """A browser that has opened a link: it has the cookie and no bearer token."""
    with httpx.Client(base_url=site.server.origin, trust_env=False) as client:
        assert client.get(site.server.url, follow_redirects=True).status_code in (200, 404)
        client.headers["origin"] = site.server.origin
        yield client


@pytest.fixture
def stranger(site):
    with httpx.Client(base_url=site.server.origin, trust_env=False) as client:
        yield client


def test_every_address_needs_a_proof(site, stranger):
    paths = ["/", "/s/talk", "/static/main.js", STATUS, "/api/v1/openapi.json", "/api/v1/events", "/nothing"]
    assert {path: stranger.get(path).status_code for path in paths} == dict.fromkeys(paths, 401)
    assert stranger.post(UNDO, json={}).status_code == 401


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1",
        "localhost",
        "127.0.0.1:1",
        "127.0.0.1.evil.example",
        "localhost:{port}.evil.example",
        "",
    ],
)
def test_a_host_that_is_not_exactly_ours_is_refused(site, host):
    answer = site.send("/status", headers={"host": host.format(port=site.server.port)})
    assert answer.status_code in (400, 421)  # 400: the server's own, of an empty Host


def test_our_own_names_are_taken(site):
    for name in ("127.0.0.1", "localhost", "LOCALHOST"):
        assert site.send("/status", headers={"host": f"{name}:{site.server.port}"}).status_code == 200


def test_two_hosts_are_refused(site):
    request = f"GET {STATUS} HTTP/1.1\r\nHost: 127.0.0.1:{site.server.port}\r\nHost: evil.example\r\n\r\n"
    with socket.create_connection(("127.0.0.1", site.server.port)) as connection:
        connection.sendall(request.encode())
        assert connection.recv(100).split()[1] in (b"400", b"421")


def test_a_link_works_once_and_its_token_is_not_the_cookie(site, stranger):
    link = site.server.new_link("/s/talk")
    first = stranger.get(link)
    assert (first.status_code, first.headers["location"]) == (303, "/s/talk")
    cookie = first.headers["set-cookie"]
    assert cookie.startswith(f"holdfast-{site.server.port}=")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    assert "domain" not in cookie.lower()
    token = link.partition("token=")[2]
    assert token not in cookie
    assert site.server.bearer not in cookie
    with httpx.Client(base_url=site.server.origin, trust_env=False) as other:
        assert other.get(link).status_code == 401
        assert other.get(STATUS, headers={"authorization": f"Bearer {token}"}).status_code == 401


def test_a_link_leads_to_no_other_host(site, stranger):
    answer = stranger.get(site.server.origin + "//evil.example/?token=" + site.server.new_link().partition("token=")[2])
    assert answer.headers["location"] == "/evil.example/"
    token = site.server.new_link().partition("token=")[2]
    lines = [f"GET /\\evil.example/?token={token} HTTP/1.1", f"Host: 127.0.0.1:{site.server.port}", "", ""]
    with socket.create_connection(("127.0.0.1", site.server.port)) as connection:
        connection.sendall("\r\n".join(lines).encode())
        assert b"location: /evil.example/" in connection.recv(2000)


def test_a_link_opened_again_in_its_browser_leads_to_the_page(site, browser):
    answer = browser.get(site.server.origin + "/s/talk?at=x&token=used")
    assert (answer.status_code, answer.headers["location"]) == (303, "/s/talk?at=x")
    assert "set-cookie" not in answer.headers


def test_a_link_that_another_site_opens_waits_for_its_cookie(site, stranger):
    """A redirect would go out without the cookie, which is for requests of our own page only."""
    link = site.server.new_link("/s/it's")
    answer = stranger.get(link, headers={"sec-fetch-site": "cross-site"})
    assert answer.status_code == 200
    assert answer.headers["set-cookie"].startswith(f"holdfast-{site.server.port}=")
    assert 'content="0; url=/s/it&#x27;s"' in answer.text
    assert link.partition("token=")[2] not in answer.text
    wrong = stranger.get("/?token=wrong", headers={"sec-fetch-site": "cross-site", "cookie": ""})
    assert wrong.status_code == 401


def test_a_look_ahead_does_not_use_up_a_link(site, stranger):
    link = site.server.new_link()
    assert stranger.head(link).status_code == 401
    assert stranger.get(link).status_code == 303


def test_a_wrong_token_is_refused_and_ends_no_link(site, stranger):
    link = site.server.new_link()
    assert stranger.get("/?token=wrong").status_code == 401
    assert stranger.get("/?token=%ff%00").status_code == 401
    assert stranger.get(link).status_code == 303


def test_the_cookie_of_another_port_is_none(site, browser):
    value = browser.cookies[f"holdfast-{site.server.port}"]
    with httpx.Client(base_url=site.server.origin, trust_env=False) as other:
        assert other.get(STATUS, headers={"cookie": f"holdfast-1={value}"}).status_code == 401
        assert other.get(STATUS, headers={"cookie": f"holdfast-{site.server.port}={value}x"}).status_code == 401
        assert other.get(STATUS, headers={"cookie": f"holdfast-{site.server.port}={value}"}).status_code == 200
    assert Access().cookie_value(1) != Access().cookie_value(1)  # another secret in each server


def test_a_browser_changes_things_from_our_page_only(site, browser):
    body = {"dry_run": True}
    assert browser.post(UNDO, json=body).status_code in (200, 404)
    refused = [
        {"origin": "null"},
        {"origin": "http://evil.example"},
        {"origin": f"{site.server.origin}.evil.example"},
        {"origin": f"{site.server.origin}0"},
        {"origin": f"https://127.0.0.1:{site.server.port}"},
        {"origin": f"http://localhost:{site.server.port}"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
    ]
    assert [browser.post(UNDO, json=body, headers=one).status_code for one in refused] == [403] * len(refused)
    del browser.headers["origin"]
    assert browser.post(UNDO, json=body).status_code == 403


def test_another_port_of_this_host_makes_the_server_read_nothing(site, browser):
    """Its page is of the same site, so the cookie comes along."""
    for path in (STATUS, "/api/v1/verify", "/api/v1/events"):
        for sent in ("same-site", "cross-site"):
            assert browser.get(path, headers={"sec-fetch-site": sent}).status_code == 403
    assert browser.get(STATUS, headers={"sec-fetch-site": "same-origin"}).status_code == 200
    assert browser.get("/", headers={"sec-fetch-site": "cross-site"}).status_code == 200  # a link to the page


def test_a_script_needs_no_origin_and_may_have_no_other(site):
    assert site.http.post(UNDO, json={"dry_run": True}).status_code in (200, 404)
    answer = site.http.post(UNDO, json={"dry_run": True}, headers={"origin": "http://evil.example"})
    assert answer.status_code == 403


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "FOO"])
def test_other_methods_are_refused(site, method):
    assert site.http.request(method, STATUS).status_code in (400, 405)


def test_a_get_changes_nothing_and_a_post_reads_nothing(site):
    assert site.http.get(UNDO).status_code == 405
    assert site.http.post(STATUS, json={}).status_code == 405


def test_a_web_socket_is_refused_without_a_word_in_the_log(site, caplog):
    """Any page may try to open one: browsers ask no permission for it."""
    upgrade = [
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: MDEyMzQ1Njc4OTAxMjM0NQ==",
    ]
    lines = [f"GET {STATUS} HTTP/1.1", f"Host: 127.0.0.1:{site.server.port}", *upgrade, "", ""]
    with caplog.at_level(logging.ERROR), socket.create_connection(("127.0.0.1", site.server.port)) as connection:
        connection.sendall("\r\n".join(lines).encode())
        assert connection.recv(100).split()[1] in (b"401", b"403")
    assert not caplog.records


def test_slow_and_half_open_connections_keep_nobody_waiting(site, stranger):
    begun = f"POST {UNDO} HTTP/1.1\r\nHost: 127.0.0.1:{site.server.port}\r\nContent-Le".encode()
    with contextlib.ExitStack() as open_connections:
        for _ in range(100):
            connection = socket.create_connection(("127.0.0.1", site.server.port))
            open_connections.enter_context(connection)
            connection.sendall(begun)
        assert site.send("/status", timeout=5).status_code == 200


def test_a_request_has_one_size(site):
    lines = [
        f"POST {UNDO} HTTP/1.1",
        f"Host: 127.0.0.1:{site.server.port}",
        f"Authorization: Bearer {site.server.bearer}",
        "Content-Type: application/json",
        "Content-Length: 5",
        "Transfer-Encoding: chunked",
    ]
    with socket.create_connection(("127.0.0.1", site.server.port)) as connection:
        connection.sendall("\r\n".join([*lines, "", "0", "", ""]).encode())
        assert connection.recv(100).split()[1] == b"400"


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
)
def test_a_body_that_is_no_json_is_refused(site, kind):
    assert site.http.post(UNDO, content=b"{}", headers={"content-type": kind}).status_code == 415


def test_a_large_body_is_refused(site):
    headers = {"content-type": "application/json"}
    assert site.http.post(UNDO, content=b" " * (LARGEST_BODY + 1), headers=headers).status_code == 413

    def pieces():  # without Content-Length
        yield from (b" " * 65536 for _ in range(LARGEST_BODY // 65536 + 1))

    assert site.http.post(UNDO, content=pieces(), headers=headers).status_code == 413


def test_every_answer_has_the_security_headers_and_no_cors(site, stranger, browser):
    answers = [
        site.send("/status", headers={"origin": "http://evil.example"}),
        site.send("/nothing"),
        site.send("/status", headers={"host": "evil.example"}),
        site.http.options(STATUS, headers={"origin": "http://evil.example", "access-control-request-method": "POST"}),
        stranger.get("/"),
        stranger.get(site.server.url),
        browser.get("/"),
        browser.get("/static/no.js"),
        browser.post(UNDO, content=b"x"),
    ]
    for answer in answers:
        assert HEADERS.items() <= {name.lower(): value for name, value in answer.headers.items()}.items()
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]
    policy = HEADERS["content-security-policy"]
    for part in (
        "default-src 'none'",
        "script-src 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    ):
        assert part in policy
    assert "unsafe" not in policy


def test_the_access_log_has_no_queries(site, caplog):
    with caplog.at_level(logging.INFO, "holdfast.web"):
        site.send("/search?q=my-secret-query")
        httpx.get(site.server.url, trust_env=False)
    assert "/api/v1/search" in caplog.text
    assert "my-secret" not in caplog.text
    assert "token" not in caplog.text


@pytest.mark.parametrize(
    "path",
    ["../access.py", "%2e%2e/access.py", "..%2faccess.py", "/etc/passwd", "%2fetc%2fpasswd", "index.html%00.js", "",
     "__init__.py"],
)  # fmt: skip
def test_no_path_of_a_request_is_opened(site, path):
    lines = [f"GET /static/{path} HTTP/1.1", f"Host: 127.0.0.1:{site.server.port}"]
    request = "\r\n".join([*lines, f"Authorization: Bearer {site.server.bearer}", "", ""])
    with socket.create_connection(("127.0.0.1", site.server.port)) as connection:
        connection.sendall(request.encode())
        assert connection.recv(100).split()[1] in (b"404", b"400")


def test_a_name_for_others_is_taken_exactly_and_its_cookie_needs_tls():
    access = Access(token="t" * 32, names=["box.example"])
    assert access.is_name("box.example", 8000)
    assert not access.is_name("box.example:8000", 8000)
    assert not access.is_name("www.box.example", 8000)
    assert access.is_origin("https://box.example", "box.example")
    assert not access.is_origin("https://box.example", "localhost:8000")
    assert access.is_remote("box.example")
    assert not access.is_remote("localhost:8000")


def test_a_short_token_is_refused():
    with pytest.raises(UsageError, match="at least 20"):
        Access(token="secret")
