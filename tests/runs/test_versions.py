"""Versions of the program's states, in runs: migrated on a resume, refused if newer, told before a deployment."""

from __future__ import annotations

import pytest
from stores import Store

from holdfast import Migrations, MissingMigrationError, NewerStateError


def migrations(newest: int) -> Migrations:
    registered = Migrations()
    if newest >= 2:

        @registered.register("a", 1, 2)
        def _names(state):
            return {"names": state["name"].split()}

    if newest >= 3:

        @registered.register("a", 2, 3)
        def _people(state, context):
            return {"people": state["names"]}, {**context, "migrated": True}

    return registered


def test_a_resume_migrates_the_state_and_keeps_the_steps(store: Store):
    calls = []
    with store.client().run("s", agent_id="a", state={"name": "ann bob"}) as run:
        for n in range(30):
            run.step(f"step {n}", lambda n=n: calls.append(n) or "x" * 300)
    client = store.client(migrations=migrations(3))
    with client.run("s", agent_id="a", app_version="2") as run:
        assert (run.state, run.context) == ({"people": ["ann", "bob"]}, {"migrated": True})
        assert run.step("step 29", lambda: calls.append("again")) == "x" * 300
        run.step("new", lambda: 1)
    assert calls == list(range(30))
    latest = client.latest(session_id="s")
    assert (latest.state_version, latest.stored_state_version, latest.app_version) == (3, 3, "2")
    with store.client(migrations=migrations(3)).run("s", agent_id="a") as run:
        assert [run.step("step 0", lambda: "?"), run.step("new", lambda: "?")] == ["x" * 300, 1]


def test_a_newer_state_is_refused_and_the_session_is_free_again(store: Store):
    with store.client(migrations=migrations(3)).run("s", agent_id="a", state={"people": []}) as run:
        run.step("one", lambda: 1)
    old = store.client(migrations=migrations(2))
    with pytest.raises(NewerStateError, match="newer program"):
        old.run("s", agent_id="a")
    [problem] = old.check_migrations().problems
    assert (problem.session_id, problem.reason) == ("s", "newer_state")
    with store.client(migrations=migrations(3)).run("s", agent_id="a", wait=0) as run:
        assert run.step("one", lambda: 2) == 1


def test_a_missing_migration_is_named(store: Store):
    with store.client().run("s", agent_id="a", state_version=7) as run:
        run.save()
    gap = Migrations()
    gap.register("a", 8, 9)(lambda state: state)
    with pytest.raises(MissingMigrationError):
        store.client(migrations=gap).run("s", agent_id="a")
