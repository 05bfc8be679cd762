"""`holdfast scan`, and how redacted values look in other commands: never the value, always what it was."""

from __future__ import annotations

import json

import pydantic
import pytest

from holdfast import SyncClient
from holdfast.redaction import by_path

SECRET = "hush-4f1c"
PATH = ".holdfast/store.db"


@pytest.fixture
def careless(tmp_path):
    with SyncClient.sqlite(tmp_path / PATH) as client:
        client.save("a", session_id="s", execution_state={"login": {"password": SECRET}})
        client.save("a", session_id="s", execution_state={"pin": 1234})


def test_a_scan_prints_paths_and_no_value(run, careless):
    found = run("scan", "--all")
    assert found.exit_code == 1
    assert SECRET not in found.output
    assert "execution_state.login.password  (str; path **.password)" in found.stdout
    assert "searched 2 checkpoints: 1 values are met by rules" in found.stdout
    heads = run("scan")
    assert (heads.exit_code, heads.stdout) == (0, "searched 1 checkpoints: 0 values are met by rules\n")


def test_own_rules(run, careless):
    found = run("scan", "s", "--path", "**.pin", "--pattern", "hush", "--all", "--json")
    assert found.exit_code == 1
    report = json.loads(found.stdout)
    assert (report["ok"], report["checked"]) == (False, 2)
    assert {(one["path"], one["rule"], one["type"]) for one in report["findings"]} == {
        ("execution_state.pin", "path **.pin", "int"),
        ("execution_state.login.password", "pattern hush", "str"),
    }
    assert SECRET not in found.stdout


def test_words_that_mean_nothing(run, careless):
    assert run("scan", "nobody").exit_code == 3
    assert run("scan", "--pattern", "(").exit_code == 2
    assert run("scan", "--path", "**").exit_code == 2


def test_redacted_values_are_shown_as_what_they_are(run, tmp_path):
    with SyncClient.sqlite(tmp_path / PATH, redact=by_path("**.api_key")) as client:
        first = client.save("a", session_id="s", execution_state={"n": 1, "token": pydantic.SecretStr(SECRET)})
        second = client.save("a", session_id="s", execution_state={"n": 1, "api_key": SECRET})
    shown = run("show", "s").stdout
    assert "<redacted str>" in shown
    assert json.loads(run("show", first, "--state").stdout) == {
        "n": 1,
        "token": {"$type": "redacted", "value": "<redacted SecretStr>"},
    }
    assert json.loads(run("show", "s", "--json").stdout)["execution_state"]["api_key"]["value"] == "<redacted str>"
    differences = run("diff", first, second).stdout
    assert "<redacted SecretStr>" in differences
    assert "<redacted str>" in differences
    assert "redacted" in run("show", "s", "--search", "redacted").stdout
    edits = json.loads(run("diff", first, second, "--json").stdout)
    assert "<redacted str>" in json.dumps(edits)
    assert SECRET not in shown + differences + json.dumps(edits)


def test_damage_is_named_and_hides_nothing_else(run, careless, tmp_path):
    import sqlite3

    with SyncClient.sqlite(tmp_path / PATH) as client:
        client.save("a", session_id="t", execution_state={"password": SECRET})
        [damaged] = [one.checkpoint_id for one in client.timeline("t")]
        client.save("a", session_id="u", execution_state={"password": SECRET})
    connection = sqlite3.connect(tmp_path / PATH)
    raw = bytes.fromhex(damaged.replace("-", ""))
    [data] = connection.execute("SELECT data FROM record WHERE id = ?", (raw,)).fetchone()
    connection.execute("UPDATE record SET data = ? WHERE id = ?", (bytes((*data[:-9], data[-9] ^ 1, *data[-8:])), raw))
    connection.commit()
    connection.close()
    report = json.loads(run("scan", "--json").stdout)
    assert {(one["session_id"], one["path"], one["rule"]) for one in report["findings"]} == {
        ("t", "checkpoint", "unreadable"),
        ("u", "execution_state.password", "path **.password"),
    }
