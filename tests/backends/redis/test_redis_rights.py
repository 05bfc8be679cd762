"""A user with the rights that docs/redis.md lists, and TLS with an authority of one's own."""

from __future__ import annotations

import asyncio
import re
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import redis
from servers.running import ServerUnavailable
from servers.valkey import Valkey, ValkeyCluster
from stores import messages

from holdfast import Client, StoreError, SyncClient

pytestmark = pytest.mark.servers
DOCS = Path(__file__).parents[3] / "docs" / "redis.md"


def everything_works(client: SyncClient) -> None:
    """One of each that a store is asked for."""
    first = client.save("a", session_id="s", execution_state={"messages": messages(30), "text": "x" * 9000})
    second = client.save("a", session_id="s", append={"messages": messages(1, 30)}, ttl_seconds=3600)
    client.save("a", session_id="chosen", checkpoint_id="01939c5e-7c1b-7000-8a2f-0c4c1d9be2f1")
    client.fork(first, "fork")
    client.pin(first)
    client.tag("v1", second)
    handed = client.handoff(second, target_agent_id="b")
    with client.claim(handed, "b") as claim:
        client.save("b", lease=claim.lease, execution_state={"n": 1})
    with client.lease("leased") as lease:
        client.save("a", session_id="leased", lease=lease)
    client.rollback("s", to=first)
    client.untag("v1")
    client.expire(second)
    assert len(list(client.events(after="start", follow=False))) >= 4
    assert client.find(first[-8:])
    assert len(client.sessions()) == 4
    assert client.stats()
    client.gc()
    assert client.verify().ok
    assert client.restore(first).execution_state["text"] == "x" * 9000


def add_user(node: Valkey) -> None:
    [line] = re.findall(r"^ACL SETUSER .*$", DOCS.read_text(), re.MULTILINE)
    node.ask(*line.split())


@pytest.mark.parametrize("shards", [1, 3])
def test_a_user_with_the_documented_rights(shards: int):
    try:
        server = Valkey()
    except ServerUnavailable as reason:
        pytest.skip(str(reason))
    try:
        add_user(server)
        with SyncClient.open(
            f"redis://agents:PASSWORD@127.0.0.1:{server.port}/0?prefix=team-a&shards={shards}&client_name=w"
        ) as client:
            everything_works(client)
        # The control: these are rights that are checked.
        with (
            SyncClient.open(f"redis://agents:PASSWORD@127.0.0.1:{server.port}/0?prefix=team-b") as client,
            pytest.raises(StoreError, match="permission"),
        ):
            client.save("a")
        server.ask("ACL", "SETUSER", "agents", "-zadd")
        with (
            SyncClient.open(f"redis://agents:PASSWORD@127.0.0.1:{server.port}/0?prefix=team-a") as client,
            pytest.raises(StoreError, match="permission"),
        ):
            client.save("a", session_id="s")
    finally:
        server.stop()


@pytest.mark.slow
def test_the_same_on_a_cluster(redis_cluster: ValkeyCluster):
    for node in redis_cluster.nodes:
        add_user(node)
    url = redis_cluster.url.replace("://", "://agents:PASSWORD@")
    with SyncClient.open(f"{url}?prefix=team-a&durability=replicated") as client:
        everything_works(client)


# -- TLS ---------------------------------------------------------------------------------------------------------------


class Certificates(NamedTuple):
    authority: Path
    certificate: Path
    key: Path


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority of our own, and a certificate of it for 127.0.0.1."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the certificates, is not installed")
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *new_key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority", "-days", "2")
    openssl("req", *new_key, "-keyout", "key.pem", "-out", "request.pem", "-subj", "/CN=server")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    openssl(
        "x509", "-req", "-in", "request.pem", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
        "-extfile", "names", "-out", "certificate.pem",
    )  # fmt: skip
    return Certificates(folder / "ca.pem", folder / "certificate.pem", folder / "key.pem")


class TlsFront:
    """A port that speaks TLS, and passes on to one that does not: the Valkey of the wheel is built without it."""

    def __init__(self, port: int, certificates: Certificates) -> None:
        self._target = port
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificates.certificate, certificates.key)
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        assert self._started.wait(240)

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self._target)

            async def pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
                try:
                    while data := await source.read(65536):
                        target.write(data)
                        await target.drain()
                except OSError:
                    pass
                target.close()

            await asyncio.gather(pass_on(reader, to_server), pass_on(from_server, writer))

        server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=self._context)
        self.port: int = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._end.wait()
        server.close()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(240)


@pytest.fixture
def tls_port(redis_url: str, certificates: Certificates) -> Iterator[int]:
    port = redis.connection.parse_url(redis_url).get("port", 6379)
    front = TlsFront(port, certificates)
    yield front.port
    front.stop()


def test_tls_with_an_authority_of_ones_own(tls_port: int, certificates: Certificates, tmp_path: Path):
    options = f"prefix=tls-{abs(hash(tmp_path))}&ssl_ca_certs={certificates.authority}"
    with SyncClient.open(f"rediss://127.0.0.1:{tls_port}/0?{options}") as client:
        everything_works(client)

    async def at_once() -> None:
        async with Client.open(f"rediss://127.0.0.1:{tls_port}/0?{options}") as client:
            saved = await asyncio.gather(*(client.save("a", session_id=f"t{n % 9}") for n in range(200)))
            assert len(set(saved)) == 200

    asyncio.run(at_once())


def test_a_certificate_that_nobody_vouches_for_is_refused(tls_port: int):
    with (
        SyncClient.open(f"rediss://127.0.0.1:{tls_port}/0") as client,
        pytest.raises(StoreError, match=r"(?i)certificate"),
    ):
        client.save("a")
