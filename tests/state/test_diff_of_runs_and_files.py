"""client.diff and compare: what a run did, and what became of the files."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import CheckpointNotFoundError, SyncClient


def pay(to: str) -> str:
    return f"receipt for {to}"


@pytest.fixture
def paid(client: SyncClient) -> tuple[str, str]:
    """A run's checkpoint before it pays, and its last one."""
    with client.run("s", agent_id="buyer") as run:
        run.state["plan"] = run.step("plan", lambda: "pay bob")
        before = run.save("planned")
        run.effect("pay", pay, to="bob")
        list(run.tasks("files", ["a", "b"]))
    assert before is not None
    return before, client.latest(session_id="s").checkpoint_id


def test_effects_and_steps(client: SyncClient, paid: tuple[str, str]) -> None:
    diff = client.diff(*paid)
    [effect] = diff.effects
    assert (effect.tool, effect.result, str(effect.state)) == ("pay", "receipt for bob", "done")
    assert [(one.came, one.kind, one.name, one.status) for one in diff.recorded] == [
        (True, "effect", "pay", "ok"),
        (True, "task", "a", "completed"),
        (True, "task", "b", "completed"),
    ]
    said = diff.text().split("\n")
    assert f"+ irreversible effect pay ({effect.short_id}): done" in said
    assert not [line for line in said if "holdfast.run" in line]
    back = client.diff(*reversed(paid))
    assert [one.came for one in back.recorded] == [False] * 3
    assert not back.effects
    assert back.apply(client.restore(paid[1])).agent_context == client.restore(paid[0]).agent_context


def test_of_a_run_and_none(client: SyncClient, paid: tuple[str, str]) -> None:
    other = client.save("a", session_id="other")
    assert {one.name for one in client.diff(other, paid[1]).recorded} == {"plan", "pay", "a", "b"}


def test_what_both_have_done_is_no_difference(client: SyncClient, paid: tuple[str, str]) -> None:
    client.fork(paid[0], "other")
    with client.run("other", agent_id="buyer") as run:
        run.effect("pay", pay, to="bob", on_repeat="replay")
        run.step("more", lambda: 1)
    assert [(one.came, one.name) for one in client.diff("s", "other").recorded] == [
        (False, "a"),
        (False, "b"),
        (True, "more"),
    ]


def test_references_are_taken(client: SyncClient, paid: tuple[str, str]) -> None:
    assert client.diff(f"{paid[0][-8:]}", "s").b.checkpoint_id == paid[1]


class TestFiles:
    @pytest.fixture
    def saved(self, client: SyncClient, tmp_path: Path) -> list[str]:
        project = tmp_path / "project"
        project.mkdir()
        (project / "kept").write_text("kept")
        (project / "old").write_text("old")
        first = client.save("a", session_id="s", execution_state={}, workspace=project)
        (project / "old").unlink()
        (project / "new").write_text("new")
        (project / "kept").write_text("changed")
        return [first, client.save("a", session_id="s", execution_state={}, workspace=project)]

    def test_names_and_kinds(self, client: SyncClient, saved: list[str]) -> None:
        diff = client.diff(*saved)
        assert [(change.text, change.status) for change in diff.files] == [("kept", "M"), ("new", "A"), ("old", "D")]
        assert diff.text() == "~ file kept\n+ file new\n- file old"
        assert diff
        assert not client.diff(saved[0], saved[0]).files

    def test_contents_on_demand(self, client: SyncClient, saved: list[str]) -> None:
        assert [client.read_file(id_, "kept") for id_ in saved] == [b"kept", b"changed"]
        later = client.save("a", session_id="s", execution_state={"n": 1})
        assert client.read_file(later, "new") == b"new"
        with pytest.raises(CheckpointNotFoundError, match="no file 'old'"):
            client.read_file("s", "old")
        with pytest.raises(CheckpointNotFoundError, match="no snapshot"):
            client.read_file(client.save("b"), "old")

    def test_none_where_one_has_no_snapshot(self, client: SyncClient, saved: list[str]) -> None:
        assert client.diff(saved[1], client.save("a", session_id="s", execution_state={})).files is None

    def test_bisected_with_files(self, client: SyncClient, saved: list[str]) -> None:
        seen: list[Path] = []

        def is_good(_checkpoint: object, directory: Path) -> bool:
            seen.append(directory)
            return (directory / "kept").read_text() == "kept"

        found = client.bisect("s", is_good, files=True)
        assert found.first_bad.checkpoint_id == saved[1]
        assert seen
        assert not any(directory.parent.exists() for directory in seen)


def test_side_by_side(client: SyncClient, paid: tuple[str, str], tmp_path: Path) -> None:
    client.fork(paid[0], "other")
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "file").touch()
    with client.run("other", agent_id="buyer") as run:
        run.effect("mail", pay, to="bob", kind="reversible")
        run.effect("mail", pay, to="ann", kind="reversible")
    found = client.compare("s", "other")
    rows = {row[0]: row[1:] for row in found.rows()}
    assert rows["effects"] == ("1 × pay", "2 × mail")
    assert [effect.tool for effect in found.b.since.effects] == ["mail", "mail"]
    assert found.step_rows()[0] == ("1", "2 pay", "2 mail")
    assert "2 × mail" in found.text()
