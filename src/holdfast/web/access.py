"""Who may use the server: its names, its origins, its tokens. Decides; does no I/O.

A link carries a token that works once. It is exchanged for a cookie that holds another secret.
Scripts send a bearer token. All comparisons take constant time.
"""

from __future__ import annotations

import hmac
import secrets
import threading
from collections.abc import Mapping, Sequence

from holdfast.errors import UsageError

TOKEN_BYTES = 32
MOST_LINKS = 16  # unused links that are valid at once
SHORTEST_TOKEN = 20
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class Access:
    """The names and secrets of one server.

    `token` is the bearer token of scripts, made here if it is left out. `names` are further values
    of the Host header, exactly as browsers send them, for a server behind a proxy.
    """

    def __init__(self, *, token: str | None = None, names: Sequence[str] = ()) -> None:
        if token is not None and len(token) < SHORTEST_TOKEN:
            raise UsageError(f"the token has {len(token)} characters: take at least {SHORTEST_TOKEN}, made at random")
        self.bearer = secrets.token_urlsafe(TOKEN_BYTES) if token is None else token
        self._names = frozenset(name.lower() for name in names)
        self._links: list[str] = []
        self._lock = threading.Lock()

    def new_link(self) -> str:
        """Return a token for a URL. It works once."""
        made = secrets.token_urlsafe(TOKEN_BYTES)
        with self._lock:
            self._links = [*self._links[1 - MOST_LINKS :], made]
        return made

    def use_link(self, token: str) -> bool:
        """Return whether the token of a URL is valid, and end its validity."""
        with self._lock:
            found = [link for link in self._links if is_same(link, token)]
            self._links = [link for link in self._links if link not in found]
        return bool(found)

    def is_name(self, host: str | None, port: int) -> bool:
        """Return whether a Host header names this server."""
        if host is None:
            return False
        name = host.lower()
        return (
            name in self._names or name in {f"{item}:{port}" for item in LOOPBACK} or (port == 80 and name in LOOPBACK)
        )

    def is_origin(self, origin: str, host: str | None) -> bool:
        """Return whether an Origin header is that of the page which this server sent, as its Host says."""
        if host is None:
            return False
        name = host.lower()
        schemes = ("http", "https") if name in self._names else ("http",)
        return origin.lower() in {f"{scheme}://{name}" for scheme in schemes}

    def is_remote(self, host: str | None) -> bool:
        return host is not None and host.lower() in self._names

    @staticmethod
    def cookie_name(port: int) -> str:
        """Return the cookie's name. Browsers share cookies between the ports of a host."""
        return f"holdfast-{port}"

    def cookie_value(self, port: int) -> str:
        """Return the cookie's value: another secret than the tokens, valid while the bearer token is."""
        return hmac.digest(self.bearer.encode(), b"holdfast cookie %d" % port, "sha256").hex()

    def is_known(self, headers: Mapping[str, str], port: int) -> str | None:
        """Return how the request proves who sends it: "bearer", "cookie", or None if it does not."""
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return "bearer" if is_same(self.bearer, token.strip()) else None
        wanted, value = self.cookie_name(port), self.cookie_value(port)
        given = [part.strip().partition("=") for part in headers.get("cookie", "").split(";")]
        return "cookie" if any(is_same(value, text) for name, _, text in given if name == wanted) else None


def is_same(secret: str, given: str) -> bool:
    """Compare a secret in constant time."""
    return hmac.compare_digest(secret.encode(), given.encode("utf-8", "surrogatepass"))
