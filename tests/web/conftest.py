"""A served store with a little of everything, one for each module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import web_site

from holdfast import SyncClient


@pytest.fixture(scope="module")
def known() -> dict[str, str]:
    return {}


@pytest.fixture(scope="module")
def site(tmp_path_factory, known) -> Iterator[web_site.Site]:
    root = tmp_path_factory.mktemp("site")
    with SyncClient.sqlite(root / "store.db") as client:
        known |= web_site.fill(client, root / "work")
        with web_site.served(client, workspace=client.workspace(root / "work")) as site:
            yield site
