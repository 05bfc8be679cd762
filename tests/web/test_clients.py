"""The application over clients of each kind, and within another application."""

from __future__ import annotations

import asyncio
import dataclasses

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from web_site import Site, served

from holdfast import Client, SyncClient, register
from holdfast.web import app
from holdfast.web.server import serve


def test_an_async_client_is_served(tmp_path):
    async def main() -> str:
        async with Client.sqlite(tmp_path / "store.db") as client:
            id_ = await client.save("a", execution_state={"n": 1}, session_id="s")
            with serve(app(client)) as server:
                site = Site(client, server)
                assert (await asyncio.to_thread(site.get, "/sessions/s"))["head"]["checkpoint_id"] == id_
                await asyncio.to_thread(site.post, f"/checkpoints/{id_}/tag", {"name": "v"})
                site.http.close()
            assert (await client.tagged("v")).checkpoint_id == id_  # the client is still open, and sees it
            return id_

    assert asyncio.run(main())


def test_it_is_mounted_in_an_application_of_ones_own(tmp_path):
    with SyncClient.sqlite(tmp_path / "store.db") as client:
        client.save("a", session_id="s")
        ours = app(client, token="t" * 40)
        outer = Starlette(routes=[Mount("/store", app=ours)])
        outer.access = ours.access
        with serve(outer) as server:
            headers = {"authorization": f"Bearer {'t' * 40}"}
            address = f"{server.origin}/store/api/v1/sessions"
            assert httpx.get(address, headers=headers, trust_env=False).json()["total"] == 1
            assert httpx.get(address, trust_env=False).status_code == 401


def test_a_state_with_types_of_the_application_is_shown_as_it_is_stored(tmp_path):
    @dataclasses.dataclass
    class Point:
        x: int

    register(Point, name="web-test-point")

    with SyncClient.sqlite(tmp_path / "store.db") as client:
        client.save("a", execution_state={"at": Point(3)}, session_id="s")
        with served(client) as site:
            found = site.get("/checkpoints/s/state")["value"]["at"]
            assert found == {"$type": "web-test-point", "value": {"x": 3}}
            assert isinstance(client.latest("s").execution_state["at"], Point)


@pytest.mark.parametrize(("name", "writable"), [("postgres", False), ("redis", False), ("of another package", False)])
def test_a_store_on_a_server_is_only_read_unless_asked(tmp_path, monkeypatch, name, writable):
    from dataclasses import replace

    with SyncClient.sqlite(tmp_path / "store.db") as client:
        backend = client._ctx.backend.backend
        kind = type(backend)
        known = backend.capabilities
        monkeypatch.setattr(kind, "capabilities", property(lambda _: replace(known, name=name)), raising=False)
        assert (app(client).site.read_only_because is None) is writable
        assert app(client, writable=True).site.read_only_because is None
        monkeypatch.undo()
        assert app(client).site.read_only_because is None
