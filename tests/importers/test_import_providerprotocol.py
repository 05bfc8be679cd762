"""A `.checkpoints/` directory is taken over, as @providerprotocol/agents or `FileCheckpoints` wrote it."""

import hashlib
import json
import os
import threading
import uuid
from pathlib import Path

import pytest

from holdfast import CheckpointNotFoundError, SyncFileCheckpoints, UsageError
from holdfast.model.reports import ImportedReport

AGENT = "0b8a6a0e-8f2e-4b43-9a55-6d5f0f6e3a11"


def agent_state(step: int, text: str = "hello", agent: str | None = AGENT) -> dict:
    return {
        "version": "1.0.0",
        "id": str(uuid.UUID(int=step)),
        "messages": [{"role": "user", "content": [{"type": "text", "text": text}]}],
        "step": step,
        "metadata": {"agentId": agent} if agent else {},
        "reasoning": [],
    }


def write(root: Path, session: str, state: dict, *, step: int | None = None, named: str | None = None) -> str:
    """A session as the program writes it: two files, indented by two. The id of its checkpoint."""
    folder = root / session
    folder.mkdir(parents=True, exist_ok=True)
    id_ = str(uuid.uuid4())
    metadata = {
        "sessionId": named or session,
        "checkpointId": id_,
        "timestamp": "2026-02-03T04:05:06.789Z",
        "step": state["step"] if step is None else step,
        "agentId": state["metadata"].get("agentId", "unknown"),
    }
    (folder / "checkpoint.json").write_text(json.dumps(state, indent=2), "utf-8")
    (folder / "metadata.json").write_text(json.dumps(metadata, indent=2), "utf-8")
    return id_


@pytest.fixture
def theirs(tmp_path) -> Path:
    root = tmp_path / "their" / ".checkpoints"
    root.mkdir(parents=True)
    return root


def fingerprint(root: Path) -> dict[str, str | None]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
        for path in root.rglob("*")
    }


def test_sessions_are_taken_over_with_their_dates_steps_and_agents(client, theirs):
    id_ = write(theirs, "my-session", agent_state(3))
    write(theirs, "user/1", agent_state(4, agent=None))  # the program makes nested folders of it
    write(theirs, "Größe 7 %41", agent_state(5))
    before = fingerprint(theirs)
    report = client.import_providerprotocol(theirs)
    assert (report.imported, report.skipped, report.warnings) == (3, (), ())
    assert sorted(report.sessions) == ["Größe 7 %41", "my-session", "user/1"]
    got = client.latest(session_id="my-session")
    assert got.execution_state == agent_state(3)
    assert (got.agent_id, got.step_index) == (AGENT, 3)
    assert got.created_at.isoformat() == "2026-02-03T04:05:06.789000+00:00"
    assert got.metadata == {"imported_from": "providerprotocol", "providerprotocol_id": id_}
    assert client.latest(session_id="user/1").agent_id == "unknown"
    assert fingerprint(theirs) == before
    assert client.verify().ok


def test_importing_again_does_nothing_and_later_adds_to_the_history(client, theirs):
    write(theirs, "s", agent_state(1))
    client.import_providerprotocol(theirs)
    report = client.import_providerprotocol(theirs)
    assert (report.imported, report.already) == (0, 1)
    write(theirs, "s", agent_state(2))
    assert client.import_providerprotocol(theirs).imported == 1
    second, first = client.timeline(session_id="s")
    assert (second.parent_id, second.step_index, first.step_index) == (first.checkpoint_id, 2, 1)


def test_a_session_that_has_gone_on_here_is_not_taken_back(client, theirs):
    write(theirs, "s", agent_state(1))
    client.import_providerprotocol(theirs)
    head = client.save(agent_id="a", session_id="s", execution_state={"ours": True})
    assert client.import_providerprotocol(theirs).ok
    write(theirs, "s", agent_state(2))
    report = client.import_providerprotocol(theirs)
    assert (report.imported, [remark.where for remark in report.skipped]) == (0, ["s"])
    assert client.latest(session_id="s").checkpoint_id == head


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda folder: half(folder / "checkpoint.json"), "JSON"),
        (lambda folder: (folder / "checkpoint.json").write_bytes(b""), "JSON"),
        (lambda folder: (folder / "checkpoint.json").write_bytes(b"\xff\xfe{}"), "JSON"),
        (lambda folder: (folder / "checkpoint.json").write_text("[1, 2]"), "not a state"),
        (lambda folder: (folder / "checkpoint.json").write_text('{"step": NaN}'), "JSON"),
        (lambda folder: (folder / "checkpoint.json").unlink(), "no checkpoint.json"),
        (lambda folder: write(folder.parent, "bad", agent_state(9), named="another"), "'another'"),
    ],
)
def test_what_can_not_be_read_is_named_and_the_rest_is_imported(quick, theirs, damage, reason):
    for session in ("a", "bad", "c"):
        write(theirs, session, agent_state(1, session))
    damage(theirs / "bad")
    report = quick.import_providerprotocol(theirs)
    [skipped] = report.skipped
    assert skipped.where == "bad"
    assert reason in skipped.message
    assert report.sessions == ("a", "c")
    assert quick.session("bad") is None


@pytest.mark.parametrize(
    ("damage", "remark"),
    [
        (lambda folder: (folder / "metadata.json").unlink(), "no metadata.json"),
        (lambda folder: half(folder / "metadata.json"), "can't be read"),
        (lambda folder: write(folder.parent, "s", agent_state(9), step=8), "not written with"),
        (
            lambda folder: (folder / "metadata.json").write_text('{"sessionId": "s", "timestamp": 5}'),
            "not written with",
        ),
    ],
)
def test_a_whole_state_is_taken_even_if_its_metadata_is_not_its_own(quick, theirs, damage, remark):
    write(theirs, "s", agent_state(9))
    damage(theirs / "s")
    report = quick.import_providerprotocol(theirs)
    assert (report.imported, report.skipped) == (1, ())
    [warning] = report.warnings
    assert remark in warning.message
    got = quick.latest(session_id="s")
    assert (got.execution_state, got.step_index, got.agent_id) == (agent_state(9), 9, AGENT)
    assert "providerprotocol_id" not in got.metadata
    assert quick.import_providerprotocol(theirs).already == 1


def test_two_sessions_whose_files_were_swapped(quick, theirs):
    for session, agent in (("a", "one"), ("b", "two")):
        write(theirs, session, agent_state(1, agent=agent))
    for name in ("checkpoint.json", "metadata.json"):
        (theirs / "a" / name).rename(theirs / "x")
        (theirs / "b" / name).rename(theirs / "a" / name)
        (theirs / "x").rename(theirs / "b" / name)
    report = quick.import_providerprotocol(theirs)
    assert [remark.where for remark in report.skipped] == ["a", "b"]


def test_empty_folders_and_links_are_named(quick, theirs, tmp_path):
    (theirs / "empty").mkdir()
    write(tmp_path, "elsewhere", agent_state(1))
    (theirs / "link").symlink_to(tmp_path / "elsewhere")
    report = quick.import_providerprotocol(theirs)
    assert {remark.where for remark in report.skipped} == {"empty", "link"}
    assert report.imported == 0


def test_our_own_file_checkpoints_are_taken_over_under_their_ids(client, theirs):
    ours = SyncFileCheckpoints(theirs)
    names = ["plain", "with/slash", "Capital", "x" * 300]
    for number, name in enumerate(names):
        ours.save(name, {"step": number, "metadata": {"agent_id": "me"}})
    before = fingerprint(theirs)
    report = client.import_providerprotocol(theirs)
    assert (report.imported, report.skipped, report.warnings) == (4, (), ())
    for number, name in enumerate(names):
        got = client.latest(session_id=name)
        about = ours.load_metadata(name)
        assert (got.checkpoint_id, got.step_index, got.agent_id) == (about.checkpoint_id, number, "me")
        assert got.execution_state == ours.load(name)
    assert fingerprint(theirs) == before
    assert client.import_providerprotocol(theirs).already == 4


def test_our_own_files_under_another_session_are_refused(quick, theirs):
    ours = SyncFileCheckpoints(theirs)
    ours.save("a", {"step": 1})
    (theirs / "a").rename(theirs / "b")
    report = quick.import_providerprotocol(theirs)
    assert (report.imported, [remark.where for remark in report.skipped]) == (0, ["b"])


def test_a_dry_run_saves_nothing(client, theirs):
    write(theirs, "s", agent_state(1))
    assert client.import_providerprotocol(theirs, dry_run=True).imported == 1
    assert client.sessions() == []


def test_a_directory_that_is_not_there_or_is_one_session(quick, theirs):
    with pytest.raises(CheckpointNotFoundError):
        quick.import_providerprotocol(theirs / "nothing")
    write(theirs, "s", agent_state(1))
    with pytest.raises(UsageError, match="one session"):
        quick.import_providerprotocol(theirs / "s")


@pytest.mark.parametrize("name", ["checkpoint.json", "metadata.json"])
@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_no_link_is_followed_and_no_fifo_waited_for(quick, theirs, tmp_path, name, kind):
    """What a stranger's directory leads to is not imported, and keeps nobody waiting."""
    write(theirs, "sound", agent_state(1))
    write(theirs, "odd", agent_state(1, "mine"))
    secret = tmp_path / "secret.json"
    (theirs / "odd" / name).rename(secret)
    if kind == "link":
        (theirs / "odd" / name).symlink_to(secret)
    else:
        os.mkfifo(theirs / "odd" / name)
    reports: list[ImportedReport] = []
    thread = threading.Thread(target=lambda: reports.append(quick.import_providerprotocol(theirs)), daemon=True)
    thread.start()
    thread.join(60)
    assert reports, "it waits"
    assert reports[0].sessions == ("sound",) or name == "metadata.json"
    said = [remark.message for remark in (*reports[0].skipped, *reports[0].warnings)]
    assert len(said) == 1
