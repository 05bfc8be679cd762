"""Connections of threads without an event loop: each request gets its own reply, or an error that says why not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

import pytest
import redis
from redis.exceptions import ResponseError
from servers.running import ServerUnavailable
from servers.valkey import Valkey

from holdfast import StoreBusyError, StoreError, SyncClient
from holdfast.backends.bridge.step import run_inline
from holdfast.backends.redis.connection import LostError
from holdfast.backends.redis.pool import RedisPool
from holdfast.backends.redis.sync_connection import BlockingPool, Command

pytestmark = pytest.mark.servers


@pytest.fixture
def valkey() -> Iterator[Valkey]:
    """One of its own: it is stopped and paused here."""
    try:
        server = Valkey()
    except ServerUnavailable as reason:
        pytest.skip(str(reason))
    yield server
    server.stop()


class Asked:
    """A pool of one server, asked by threads."""

    def __init__(self, valkey: Valkey, *, limit: int = 1, timeout: float = 30.0) -> None:
        self.pool: BlockingPool = RedisPool({}, valkey.url, limit, timeout).without_loop()
        self._node = ("127.0.0.1", valkey.port)

    def __call__(self, *commands: Command):
        return run_inline(self.pool.exchange(self._node, commands))

    @property
    def connections(self) -> int:
        return self(("CLIENT", "LIST"))[0].count(b"\n")


def test_requests_of_a_thread_share_a_connection_and_each_gets_its_reply(valkey):
    ask = Asked(valkey, limit=8)
    for number in range(50):
        assert ask(("ECHO", number), ("PING",)) == [b"%d" % number, b"PONG"]
    first, refused, last = ask(("ECHO", "a"), ("NOSUCH",), ("ECHO", "b"))
    assert (first, last) == (b"a", b"b")
    assert isinstance(refused, ResponseError)
    data = os.urandom(8_000_000)
    assert ask(("SET", "k", data), ("GET", "k")) == [b"OK", data]
    assert ask.connections == 1


def test_threads_have_no_more_connections_than_allowed(valkey):
    ask = Asked(valkey, limit=2)
    replies: dict[int, list[bytes]] = {}

    def use(number: int) -> None:
        replies[number] = [ask(("ECHO", f"{number} {n}"))[0] for n in range(50)]

    threads = [threading.Thread(target=use, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert replies == {number: [b"%d %d" % (number, n) for n in range(50)] for number in range(8)}
    assert ask.connections <= 2


def test_a_thread_waits_for_a_connection_no_longer_than_the_timeout(valkey):
    ask = Asked(valkey, limit=1, timeout=2)
    ask(("PING",))
    assert ask.pool._places.take(1)  # as a thread that is in the middle of a request
    with pytest.raises(StoreBusyError, match="1 connections were in use"):
        ask(("PING",))
    ask.pool._places.give_back()
    assert ask(("PING",)) == [b"PONG"]


def test_a_silent_server_is_lost_and_the_next_request_has_another_connection(valkey):
    ask = Asked(valkey, timeout=2)
    ask(("PING",))
    os.kill(valkey.server.pid, signal.SIGSTOP)
    try:
        [lost] = ask(("ECHO", "late"))
    finally:
        os.kill(valkey.server.pid, signal.SIGCONT)
    assert isinstance(lost, LostError)
    assert "no answer within 2 s" in str(lost)
    deadline = time.monotonic() + 120
    while isinstance(ask(("PING",))[0], LostError) and time.monotonic() < deadline:  # until it has woken up
        pass
    assert ask(("ECHO", "mine")) == [b"mine"]


def test_a_request_of_which_the_server_takes_a_part_loses_the_rest(valkey):
    ask = Asked(valkey)
    first, lost = ask(("ECHO", "a"), ("CLIENT", "KILL", "SKIPME", "no", "TYPE", "normal"))
    assert first == b"a" or isinstance(first, LostError)
    assert isinstance(lost, LostError) or lost == 1
    assert ask(("ECHO", "b")) == [b"b"]


def test_an_interrupted_request_leaves_its_reply_to_no_other(valkey):
    ask = Asked(valkey)
    ask(("PING",))

    class InterruptedTestError(Exception):
        pass

    def interrupt(*_: object) -> None:
        raise InterruptedTestError

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(InterruptedTestError):
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            ask(("BLPOP", "nothing", "60"), ("ECHO", "late"))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert ask(("ECHO", "mine")) == [b"mine"]


def test_a_closed_pool_says_so_and_keeps_no_connection(valkey):
    ask, other = Asked(valkey, limit=4), Asked(valkey)
    ask(("PING",))
    assert other.connections == 2
    run_inline(ask.pool.close())
    deadline = time.monotonic() + 120
    while other.connections > 1:
        assert time.monotonic() < deadline
    with pytest.raises(StoreError, match="was closed"):
        ask(("PING",))


def test_a_server_that_is_not_there_is_named(valkey):
    valkey.stop()
    with SyncClient.open(valkey.url) as client, pytest.raises(StoreError, match="can't be reached"):
        client.save("a", session_id="s")


def test_a_store_in_shards_is_known_as_such_without_a_loop(redis_url, tmp_path):
    with SyncClient.open(f"{redis_url}?prefix={tmp_path.name}", shards=3) as client:
        client.save("a", session_id="s")
        assert client._ctx.backend.capabilities.splits


TLS_PROXY = """
import asyncio, ssl, sys

async def pass_on(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()

async def accept(reader, writer):
    from_server, to_server = await asyncio.open_connection("127.0.0.1", int(sys.argv[2]))
    await asyncio.gather(pass_on(reader, to_server), pass_on(from_server, writer), return_exceptions=True)

async def serve():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[1])
    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(serve())
"""


@pytest.fixture
def tls_port(valkey, tmp_path) -> Iterator[int]:
    """A port that speaks TLS, with a certificate of its own, and passes all on to the server."""
    certificate(tmp_path / "tls.pem")
    arguments = [sys.executable, "-c", TLS_PROXY, str(tmp_path / "tls.pem"), str(valkey.port)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as proxy:
        assert proxy.stdout is not None
        yield int(proxy.stdout.readline())
        proxy.kill()


def certificate(file: Path) -> None:
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
        .not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))


def test_a_store_is_reached_by_tls_and_an_ended_connection_is_replaced(valkey, tls_port, tmp_path):
    with SyncClient.open(f"rediss://127.0.0.1:{tls_port}/0?ssl_ca_certs={tmp_path / 'tls.pem'}") as client:
        for n in range(5):
            client.save("a", session_id="s", execution_state={"n": n, "text": "x" * 100_000})
        with redis.Redis.from_url(valkey.url) as server:
            for one in server.client_list():
                if one["id"] != str(server.client_id()):
                    server.client_kill_filter(_id=one["id"])
        assert client.latest("s").execution_state["n"] == 4
        assert len(client.timeline("s")) == 5
    with SyncClient.open(f"rediss://127.0.0.1:{tls_port}/0") as client, pytest.raises(StoreError, match="certificate"):
        client.sessions()
