"""`holdfast langgraph init` and `threads`. That `threads --restore` brings threads back is shown
with the real server, in test_langgraph_dev.py."""

import json
import os
import socket
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import SyncClient
from holdfast.cli.langgraph.config_file import OURS, with_checkpointer
from holdfast.errors import ConflictError, UsageError

CONFIG = """\
{
    "dependencies": ["."],
    "graphs":  { "agent": "./agent.py:graph" },

    "env": ".env"
}
"""


@pytest.fixture
def config(tmp_path):
    file = tmp_path / "langgraph.json"
    file.write_text(CONFIG)
    return file


# -- init
# ----------------------------------------------------------------------------------------------------------------


def test_init_shows_the_difference_and_changes_one_thing(run, config):
    config.chmod(0o640)
    result = run("langgraph", "init", "--yes")
    assert result.exit_code == 0
    assert '+    "checkpointer": {"path": "holdfast.langgraph.dev_checkpointer"}' in result.stderr
    assert result.stdout == "langgraph.json names holdfast now\n"
    assert config.read_text() == CONFIG.replace('".env"\n', f'".env",\n\n    "checkpointer": {{"path": "{OURS}"}}\n')
    assert stat.S_IMODE(config.stat().st_mode) == 0o640
    assert [path.name for path in config.parent.iterdir()] == ["langgraph.json"]


def test_init_again_changes_nothing(run, config):
    first = run("langgraph", "init", "--yes", "--json")
    assert json.loads(first.stdout) == {
        "file": "langgraph.json", "changed": True, "checkpointer": {"path": OURS},
    }  # fmt: skip
    written = config.read_bytes()
    second = run("langgraph", "init", "--json")  # asks nothing, as there is nothing to do
    assert (second.exit_code, json.loads(second.stdout)["changed"]) == (0, False)
    assert config.read_bytes() == written


def test_init_changes_no_file_outside_and_waits_for_no_fifo(run, config, tmp_path, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "langgraph.json"
    outside.write_text(CONFIG)
    config.unlink()
    config.symlink_to(outside)
    for path in ([], ["."], [str(tmp_path)]):
        result = run("langgraph", "init", "--yes", *path)
        assert (result.exit_code, "leads out of the project" in result.stderr) == (2, True)
    assert outside.read_text() == CONFIG
    config.unlink()
    os.mkfifo(config)
    result = run("langgraph", "init", "--yes")
    assert (result.exit_code, "is no regular file" in result.stderr) == (2, True)


def test_init_changes_nothing_where_nobody_can_be_asked(run, config):
    result = run("langgraph", "init")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "+    " in result.stderr
    assert config.read_text() == CONFIG


def test_init_takes_a_file_or_its_directory_and_keeps_a_link(run, config, tmp_path):
    (tmp_path / "linked").mkdir()
    link = tmp_path / "linked" / "langgraph.json"
    link.symlink_to(config)
    assert run("langgraph", "init", "linked", "--yes").exit_code == 0
    assert link.is_symlink()
    assert OURS in config.read_text()
    assert run("langgraph", "init", str(config)).stdout == f"{config} names holdfast already\n"


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (None, 3, "there is no langgraph.json"),
        ("{", 2, "it is no JSON"),
        ("[1]", 2, "no configuration of LangGraph"),
        ('{"graphs": {}}', 2, "no configuration of LangGraph"),
        ('{"graphs": {"a": "b"}, "checkpointer": "me"}', 2, "not an object"),
        ('{"graphs": {"a": "b"}, "checkpointer": {"path": "./mine.py:saver"}}', 4, "--replace"),
        ('{"graphs": {"a": "b"}, "checkpointer": {"backend": "mongo"}}', 4, 'Remove "backend"'),
        (b"\xff\xfe", 2, "can't be read"),
    ],
)
def test_init_refuses(run, tmp_path, text, code, words):
    file = tmp_path / "langgraph.json"
    if text is not None:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    before = file.read_bytes() if text is not None else None
    result = run("langgraph", "init", "--yes")
    assert (result.exit_code, result.stdout) == (code, "")
    assert words in result.stderr
    assert (file.read_bytes() if file.exists() else None) == before


def test_replace_takes_the_place_of_another_and_keeps_what_is_beside_it(run, tmp_path):
    file = tmp_path / "langgraph.json"
    file.write_text('{"graphs": {"a": "b"}, "checkpointer": {"path": "./mine.py:saver", "ttl": {"default_ttl": 5}}}')
    assert run("langgraph", "init", "--yes", "--replace").exit_code == 0
    assert json.loads(file.read_text())["checkpointer"] == {"path": OURS, "ttl": {"default_ttl": 5}}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
CHECKPOINTERS = st.sampled_from(
    ["absent", None, {}, {"ttl": {"default_ttl": 5}}, {"path": None}, {"path": OURS}, {"path": "x.y", "serde": {}}]
)


@given(
    st.dictionaries(st.text(), VALUES, max_size=4),
    CHECKPOINTERS,
    st.sampled_from([None, 0, 1, 4, "\t"]),
    st.sampled_from([(",", ":"), (", ", ": "), (" ,\r\n ", " : ")]),
    st.booleans(),
)
def test_only_the_checkpointer_changes(others, checkpointer, indent, separators, ascii_only):
    config = {**others, "graphs": {"agent": "./agent.py:graph"}}
    if checkpointer != "absent":
        config["checkpointer"] = checkpointer
    else:
        config.pop("checkpointer", None)
    text = f"\n{json.dumps(config, indent=indent, separators=separators, ensure_ascii=ascii_only)}\n\n"
    after = with_checkpointer(text, replace=True)
    kept = checkpointer if isinstance(checkpointer, dict) else {}
    expected = {**config, "checkpointer": {**kept, "path": OURS}}
    assert json.loads(after) == expected
    assert list(json.loads(after)) == list(expected)
    assert with_checkpointer(after) == after
    # What stands before and after the change is as it was: one piece was put in, or put in the place of another.
    same = next((at for at, (old, new) in enumerate(zip(text, after, strict=False)) if old != new), len(text))
    rest = len(text) - same
    while rest and text[-rest:] != after[-rest:]:
        rest -= 1
    taken = text[same : len(text) - rest]
    assert "graphs" not in taken
    assert taken in json.dumps(checkpointer) or '"x.y"' in taken or taken.strip(" {}\r\n") in ("", "nu", "null")


@given(st.text() | st.binary().map(lambda data: data.decode("latin-1")))
def test_what_is_no_configuration_is_refused_with_words(text):
    with pytest.raises((UsageError, ConflictError)):
        with_checkpointer(text)


# -- threads
# -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def threads(tmp_path):
    """Two threads of a server, one with a subgraph, one thread of a program, and a session that is
    none of LangGraph's."""
    saver = pytest.importorskip("holdfast.langgraph").HoldfastSaver
    with saver.from_sqlite(tmp_path / ".holdfast" / "store.db") as kept:
        for number, (thread, ns, graph) in enumerate(
            [
                ("01a1e224-6a61-766d-8d65-0330ad8f7a34", "", "agent"),
                ("01a1e224-6a61-766d-8d65-0330ad8f7a34", "sub:1", "agent"),
                ("a/b\x1b[2J", "", None),
            ]
        ):
            metadata = {"source": "loop", "step": number, **({"graph_id": graph} if graph else {})}
            checkpoint = {
                "v": 4, "id": f"1f1e163c-275e-6dea-8001-00000000000{number}", "ts": "2026-01-01T00:00:00+00:00",
                "channel_values": {}, "channel_versions": {}, "versions_seen": {}, "updated_channels": None,
            }  # fmt: skip
            kept.put({"configurable": {"thread_id": thread, "checkpoint_ns": ns}}, checkpoint, metadata, {})
    with SyncClient.sqlite(tmp_path / ".holdfast" / "store.db") as client:
        client.save(agent_id="other", session_id="lg/not-one", execution_state={}, thread_id=5)
        client.save(agent_id="other", session_id="mine", execution_state={})


def test_threads_are_listed(run, threads):
    result = run("langgraph", "threads")
    assert result.exit_code == 0
    header, first, second = result.stdout.splitlines()
    assert header.split() == ["thread", "graph", "saves", "step", "saved", "(UTC)"]
    assert first.startswith("a/b\\x1b[2J")
    assert second.split()[:4] == ["01a1e224-6a61-766d-8d65-0330ad8f7a34", "agent", "2", "loop"]
    listed = json.loads(run("langgraph", "threads", "--json").stdout)["threads"]
    assert [(row["graph_id"], row["saves"], row["namespaces"], row["server"]) for row in listed] == [
        (None, 1, 1, None),
        ("agent", 2, 2, None),
    ]


def test_no_threads(run, made):
    result = run("langgraph", "threads")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no threads of LangGraph" in result.stderr


def test_no_server(run, threads):
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # and nobody listens
        result = run("langgraph", "threads", "--restore", f"http://127.0.0.1:{held.getsockname()[1]}")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "no LangGraph server can be reached" in result.stderr


@pytest.mark.parametrize(
    "arguments", [["--restore", "ftp://host"], ["--restore", "here"], ["--restore", "http://h", "--header", "no colon"]]
)
def test_wrong_usage(run, threads, arguments):
    result = run("langgraph", "threads", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
