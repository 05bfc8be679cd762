"""Connections that break again and again while many save: repeating with the id of the error is
safe, and enough (P9)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import retry_recipe
from campaign import SOAK, tally
from servers.proxy import Proxy

from holdfast import Client, SyncClient

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.timeout(300)]
SAVES, CUTS = (200, 400) if SOAK else (15, 25)


@contextmanager
def cutting(proxy: Proxy) -> Iterator[None]:
    """Breaks all connections, `CUTS` times."""
    is_over = threading.Event()

    def cut() -> None:
        while proxy.cuts < CUTS:
            if is_over.wait(0.05 if proxy.cuts else 0.001):  # the first one at once: saves are quick
                return
            proxy.cut()

    thread = threading.Thread(target=cut, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_by_tasks(proxied):
    proxy, through, past = proxied
    with cutting(proxy):
        acknowledged = retry_recipe.by_tasks(Client.open(through), SAVES, closes=True)
    assert proxy.cuts
    with SyncClient.open(past) as client:
        retry_recipe.all_are_there_once(client, acknowledged, SAVES)
    tally(f"cut connections, tasks, {through.partition(':')[0]}", done=len(acknowledged), wrong=0)


def test_by_threads(proxied):
    proxy, through, past = proxied
    with SyncClient.open(through) as client, cutting(proxy):
        acknowledged = retry_recipe.by_threads(client, SAVES)
    assert proxy.cuts
    with SyncClient.open(past) as client:
        retry_recipe.all_are_there_once(client, acknowledged, SAVES)
    tally(f"cut connections, threads, {through.partition(':')[0]}", done=len(acknowledged), wrong=0)
