"""A stranger's client reads the OpenAPI document and tries the API: Schemathesis, with a bounded number of requests."""

from __future__ import annotations

import os
import subprocess

import pytest
from paths import ROOT
from web_site import fill, served

from holdfast import SyncClient

CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,unsupported_method"
)
EXAMPLES = int(os.environ.get("HOLDFAST_EXAMPLES", "15"))
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_schemathesis_finds_no_fault(tmp_path):
    program = ROOT / ".venv-client" / "bin" / "schemathesis"
    if not program.exists():
        if os.environ.get("CI"):
            pytest.fail("Schemathesis is not installed; CI needs it")
        pytest.skip("Schemathesis is not installed: `make .venv-client/installed` installs it")
    with SyncClient.sqlite(tmp_path / "store.db", durability="fast") as client:
        fill(client, tmp_path / "work")
        with served(client, workspace=tmp_path / "work") as site:
            command = [
                str(program), "run", f"{site.server.origin}/api/v1/openapi.json",
                "-H", f"Authorization: Bearer {site.server.bearer}",
                "--checks", CHECKS, "--phases", "examples,fuzzing", "--max-examples", str(min(EXAMPLES, 50)),
                "--exclude-path-regex", "/(events|verify)$", "--generation-deterministic",
                "--suppress-health-check", "all", "--no-color", "--warnings", "off", "--request-timeout", "60",
            ]  # fmt: skip
            done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
            assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
