"""A backend from a URL and options, or the reason why not."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast.backends.redis.backend import RedisBackend
    from holdfast.backends.redis.pool import Node

DURABILITIES = ("default", "replicated")
SCHEMES = {
    "redis": ("redis", False),
    "rediss": ("rediss", False),
    "redis+cluster": ("redis", True),
    "rediss+cluster": ("rediss", True),
}
SHARDS_ON_A_CLUSTER = 16
MOST_SHARDS = 256
_PREFIX = re.compile(r"[A-Za-z0-9_.:/@-]{1,200}")


_YES_OR_NO = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
_IN_URL: dict[str, Callable[[str], Any]] = {
    "prefix": str,
    "durability": str,
    "replicas": int,
    "wait_ms": int,
    "max_connections": int,
    "timeout": float,
    "shards": int,
    "auto_gc": lambda text: _YES_OR_NO[text],
}


def open_url(url: str, **options: Any) -> RedisBackend:
    """Open `redis://host:6379/0`, `rediss://` with TLS, or `redis+cluster://node1:7000,node2:7000`.

    Options are those of `open_redis`; they may be in the URL, too:
    `?prefix=team-a&durability=replicated`. Others there are redis-py's.
    """
    plain, question, query = url.partition("?")
    left: list[tuple[str, str]] = []
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in _IN_URL:
            left.append((name, value))
            continue
        try:
            options.setdefault(name, _IN_URL[name](value))
        except ValueError as error:
            raise UsageError(f"{name}={value!r} in {_hide_credentials(url)!r} is no number") from error
        except KeyError as error:
            raise UsageError(
                f"{name}={value!r} in {_hide_credentials(url)!r} must be one of {', '.join(_YES_OR_NO)}"
            ) from error
    return open_redis(plain + (question + urlencode(left) if left else ""), **options)


def open_redis(
    url: str,
    *,
    prefix: str = "holdfast",
    durability: str = "default",
    replicas: int = 1,
    wait_ms: int = 1000,
    max_connections: int = 16,
    timeout: float = 30.0,
    shards: int | None = None,
    auto_gc: bool = True,
) -> RedisBackend:
    """Return a store on the server or cluster at `url`, under `prefix`; the first call connects."""
    if durability not in DURABILITIES:
        raise UsageError(f"durability is {' or '.join(map(repr, DURABILITIES))}, not {durability!r}")
    if not _PREFIX.fullmatch(prefix):
        raise UsageError(f"prefix {prefix!r:.80} must be 1 to 200 letters, digits or any of _.:/@-")
    if replicas < 1 or wait_ms < 1 or max_connections < 1:
        raise UsageError("replicas, wait_ms and max_connections must be positive")
    if shards is not None and not 1 <= shards <= MOST_SHARDS:
        raise UsageError(f"shards must be 1 to {MOST_SHARDS}, not {shards}")
    try:
        import hiredis  # noqa: F401 - told now, not at the first call
        from redis.asyncio.connection import parse_url
    except ImportError as error:
        raise UsageError(
            "a store on Redis needs the packages `redis` and `hiredis`: pip install 'holdfast[redis]'"
        ) from error
    from holdfast.backends.redis.backend import RedisBackend
    from holdfast.backends.redis.pool import RedisPool
    from holdfast.backends.redis.script_calls import Calls, Durability, read_all

    read_all()
    scheme, _, rest = url.partition("://")
    if scheme not in SCHEMES:
        raise UsageError(
            f"{_hide_credentials(url)!r} is not a Redis store: the URL begins with {', '.join(SCHEMES)} and '://'"
        )
    plain, is_cluster = SCHEMES[scheme]
    credentials, at, places = rest.rpartition("@")
    places, slash, path = places.partition("/")
    first, *others = places.split(",")
    try:
        settings: dict[str, Any] = dict(parse_url(f"{plain}://{credentials}{at}{first}{slash}{path}"))
        nodes: list[Node] = [_node(settings), *(_node(dict(parse_url(f"{plain}://{other}"))) for other in others)]
    except ValueError as error:
        raise UsageError(f"{_hide_credentials(url)!r} is not a Redis store: {error}") from error
    if others and not is_cluster:
        raise UsageError(f"{_hide_credentials(url)!r} names several servers: for a cluster write 'redis+cluster://'")
    with suppress(ImportError):  # older redis-py versions, which know theirs without a lookup
        from redis.driver_info import DriverInfo

        # Else each connection would look it up among the installed packages, on the event loop.
        settings.setdefault("driver_info", DriverInfo())
    where = f"{_hide_credentials(url)}?prefix={prefix}"
    connections = RedisPool(settings, where, max_connections, timeout)
    return RedisBackend(
        Calls(connections, prefix, nodes, where, is_cluster=is_cluster),
        connections,
        location=where,
        durability=Durability(replicas, wait_ms) if durability == "replicated" else Durability(),
        shards=shards,
        default_shards=SHARDS_ON_A_CLUSTER if is_cluster else 1,
        auto_gc=auto_gc,
    )


def _node(settings: dict[str, Any]) -> Node:
    return settings.get("host", "localhost"), settings.get("port", 6379)


def _hide_credentials(url: str) -> str:
    """Return the URL without name and password."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url.partition("?")[0]
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()
