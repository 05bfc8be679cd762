"""save: what is kept, what is filled in, what is refused."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

import pytest
from stores import SERVED, SOME_ID, Store

from holdfast import CheckpointNotFoundError, Framework, SyncClient, UnsupportedValueError, UsageError

pytestmark = pytest.mark.every_store


def test_everything_that_was_given_comes_back(client: SyncClient, store: Store):
    root = client.save("planner", session_id="run-1")
    before = datetime.now(UTC)
    saved = client.save(
        agent_id="invoice-processor",
        framework=Framework.LANGGRAPH,
        execution_state={"node": "validate"},
        context={"invoice_id": "INV-4821"},
        session_id="run-1",
        parent_id=root,
        step_index=7,
        step_name="validate",
        ttl_seconds=3600,
        tasks=[{"id": "a", "status": "pending"}],
        app_version="2.1",
        tenant_note="any keyword is metadata",
        retries=3,
    )
    restored = client.restore(saved)
    assert restored.checkpoint_id == saved
    assert restored.agent_id == "invoice-processor"
    assert restored.framework is Framework.LANGGRAPH
    assert restored.execution_state == {"node": "validate"}
    assert restored.agent_context == {"invoice_id": "INV-4821"}
    assert restored.session_id == "run-1"
    assert restored.parent_id == root
    assert (restored.step_index, restored.step_name) == (7, "validate")
    assert restored.ttl_seconds == 3600
    assert restored.tasks == [{"id": "a", "status": "pending"}]
    assert restored.app_version == "2.1"
    assert restored.metadata == {"tenant_note": "any keyword is metadata", "retries": 3}
    assert restored.schema_version == "1.0"
    assert restored.sequence == 2
    assert restored.tree_id == root
    at_most = timedelta(seconds=60 if store.kind in SERVED else 0)  # a slow answer makes a server's clock inexact
    assert before - at_most <= restored.created_at <= datetime.now(UTC) + at_most
    assert len(restored.checksum) == 64
    assert (restored.handoff_target, restored.handoff_schema, restored.workspace) == (None, None, None)


def test_defaults(client: SyncClient):
    restored = client.restore(client.save("writer"))
    assert restored.framework is Framework.CUSTOM
    assert (restored.execution_state, restored.agent_context, dict(restored.metadata)) == ({}, {}, {})
    assert (restored.parent_id, restored.step_index, restored.step_name, restored.ttl_seconds) == (None, 0, None, None)
    assert uuid.UUID(restored.session_id).version == 4


def test_without_a_session_id_each_save_begins_a_session_of_its_own(client: SyncClient):
    first, second = client.restore(client.save("a")), client.restore(client.save("a"))
    assert first.session_id != second.session_id
    assert (first.sequence, second.sequence) == (1, 1)


def test_ids_are_uuid7_and_rise_in_the_order_of_saves(quick: SyncClient):
    saved = [quick.save("a", session_id="s") for _ in range(300)]
    assert {uuid.UUID(id_).version for id_ in saved} == {7}
    assert saved == sorted(saved)
    assert len(set(saved)) == 300


def test_the_parent_is_the_head_and_the_step_counts_on(client: SyncClient):
    first = client.save("a", session_id="s", step_index=4)
    second = client.restore(client.save("a", session_id="s"))
    assert (second.parent_id, second.step_index) == (first, 5)


def test_another_parent_makes_a_fork_and_the_new_checkpoint_is_the_head(client: SyncClient):
    root = client.save("a", session_id="s")
    left = client.save("a", session_id="s")
    right = client.save("a", session_id="s", parent_id=root)
    assert client.restore(right).parent_id == root
    assert client.restore(right).step_index == 1
    assert client.latest(session_id="s").checkpoint_id == right
    assert set(client.tree("s").leaves) == {left, right}
    assert [entry.checkpoint_id for entry in client.timeline(session_id="s")] == [right, left, root]


def test_a_parent_of_another_session_begins_a_session_in_its_tree(client: SyncClient):
    root = client.save("a", session_id="s", execution_state={"x": 1})
    child = client.restore(client.save("a", session_id="t", parent_id=root))
    assert (child.parent_id, child.tree_id, child.sequence) == (root, root, 1)
    assert client.latest(session_id="s").checkpoint_id == root


def test_an_unknown_parent_is_an_error_and_nothing_is_saved(client: SyncClient):
    with pytest.raises(CheckpointNotFoundError, match=SOME_ID):
        client.save("a", session_id="s", parent_id=SOME_ID)
    assert client.timeline(session_id="s") == []
    assert client.sessions() == []


def test_a_parent_in_another_tree_is_refused(client: SyncClient):
    elsewhere = client.save("a", session_id="other")
    mine = client.save("a", session_id="s")
    with pytest.raises(UsageError, match=r"another tree.*`fork`"):
        client.save("a", session_id="s", parent_id=elsewhere)
    assert client.latest(session_id="s").checkpoint_id == mine


@pytest.mark.parametrize("given", ["langgraph", Framework.LANGGRAPH])
def test_framework_takes_the_enum_or_its_string(quick: SyncClient, given):
    assert quick.restore(quick.save("a", given)).framework is Framework.LANGGRAPH


def test_every_framework_comes_back(quick: SyncClient):
    for framework in Framework:
        assert quick.restore(quick.save("a", framework.value)).framework is framework


def test_an_unknown_framework_is_refused_and_the_known_are_listed(quick: SyncClient):
    with pytest.raises(UsageError) as refusal:
        quick.save("a", "langraph")
    for framework in Framework:
        assert framework.value in str(refusal.value)


@pytest.mark.parametrize("keyword", ["tenant", "token", "metadata", "schema", "checksum", "verify"])
def test_names_we_may_need_later_are_reserved(quick: SyncClient, keyword):
    with pytest.raises(UsageError, match=f"'{keyword}' is reserved"):
        quick.save("a", session_id="s", **{keyword: 1})
    assert quick.timeline(session_id="s") == []


@pytest.mark.parametrize(
    ("keyword", "meant"),
    [
        ("ttl_second", "ttl_seconds"),
        ("ttl_secs", "ttl_seconds"),
        ("sesion_id", "session_id"),
        ("step_indx", "step_index"),
        ("parentid", "parent_id"),
        ("task", "tasks"),
        ("execution_stat", "execution_state"),
    ],
)
def test_a_near_miss_of_a_parameter_is_refused(quick: SyncClient, keyword, meant):
    with pytest.raises(UsageError, match=f"did you mean '{meant}'"):
        quick.save("a", session_id="s", **{keyword: "x"})


@pytest.mark.parametrize("keyword", ["label", "version", "note", "user", "cost_usd", "model", "trace_id"])
def test_other_keywords_are_metadata(quick: SyncClient, keyword):
    assert quick.restore(quick.save("a", **{keyword: 1})).metadata == {keyword: 1}


@pytest.mark.parametrize("step", [-1, True, 1.0, "1"])
def test_a_step_is_a_whole_number_from_zero_on(quick: SyncClient, step):
    with pytest.raises(UsageError, match="step_index"):
        quick.save("a", step_index=step)


@pytest.mark.parametrize("step", [2**63, 2**64, 10**5000], ids=["2**63", "2**64", "10**5000"])
def test_a_step_that_no_database_takes_is_refused_by_all_stores(client: SyncClient, step):
    client.save("a", session_id="s", execution_state={"n": 1})
    with pytest.raises(UsageError, match=r"step_index is .*at most 2\*\*63 - 1"):
        client.save("a", session_id="s", execution_state={"n": 2}, step_index=step)
    assert client.restore(client.save("a", session_id="s", execution_state={"n": 3})).step_index == 1


def test_nothing_is_counted_on_from_the_largest_step(client: SyncClient):
    largest = client.save("a", session_id="s", execution_state={"n": 1}, step_index=2**63 - 1)
    assert client.restore(largest).step_index == 2**63 - 1
    with pytest.raises(UsageError, match=r"parent's step_index is 2\*\*63 - 1.*save with a step_index"):
        client.save("a", session_id="s", execution_state={"n": 2})
    again = client.save("a", session_id="s", execution_state={"n": 3}, step_index=0)
    assert [entry.checkpoint_id for entry in client.timeline(session_id="s")] == [again, largest]


def test_a_run_counts_on_no_further_than_there_are_steps(client: SyncClient):
    client.save("a", session_id="s", execution_state={}, step_index=2**63 - 3)
    too_far = pytest.raises(UsageError, match=r"parent's step_index is 2\*\*63 - 1.*save with a step_index")
    with too_far, client.run("s") as run:
        run.step("the last but one", lambda: 1)
        run.step("the last one", lambda: 2)
        run.step("one too many", lambda: 3)
    assert client.latest(session_id="s").step_name == "the last one"


@pytest.mark.parametrize("name", ["agent_id", "session_id", "step_name", "app_version"])
def test_names_are_text(quick: SyncClient, name):
    with pytest.raises(UsageError, match=name):
        quick.save(**({"agent_id": "a"} | {name: 5}))


def test_an_id_that_is_none_is_refused_in_words(quick: SyncClient):
    with pytest.raises(CheckpointNotFoundError, match="no checkpoint, tag or session 'latest'"):
        quick.restore("latest")
    with pytest.raises(UsageError, match="is not a checkpoint id"):
        quick.restore(None)


def test_what_cannot_be_kept_is_refused_by_its_path_and_nothing_is_saved(client: SyncClient):
    with pytest.raises(UnsupportedValueError) as refusal:
        client.save("a", session_id="s", execution_state={"user": {"created": object()}})
    assert refusal.value.path == "execution_state.user.created"
    with pytest.raises(UnsupportedValueError) as refusal:
        client.save("a", session_id="s", context={"tools": [1, lambda: None]})
    assert refusal.value.path == "agent_context.tools[1]"
    with pytest.raises(UnsupportedValueError, match=r"metadata\.label"):
        client.save("a", session_id="s", label=object())
    assert client.timeline(session_id="s") == []


def test_a_refused_element_of_a_long_list_is_named(client: SyncClient):
    with pytest.raises(UnsupportedValueError) as refusal:
        client.save("a", execution_state={"messages": ["x" * 1000] * 20 + [{"who": object()}]})
    assert refusal.value.path == "execution_state.messages[20].who"


def test_the_callers_state_is_not_changed_and_may_be_changed_at_once(client: SyncClient):
    state = {"messages": [{"text": "x" * 1000, "n": i} for i in range(20)], "blob": "y" * 9000, "tags": {"a"}}
    copy = {"messages": [dict(m) for m in state["messages"]], "blob": state["blob"], "tags": {"a"}}
    saved = client.save("a", execution_state=state)
    assert state == copy
    state["messages"].clear()
    state["tags"].add("b")
    assert client.restore(saved).execution_state == copy


def test_a_state_may_be_any_value(client: SyncClient):
    for state in ([1, 2], "text", 5, (1, {2}), ["x" * 1000] * 10, "z" * 10_000, b"z" * 10_000, 0, False, ""):
        restored = client.restore(client.save("a", execution_state=state, context=state))
        assert restored.execution_state == state
        assert type(restored.agent_context) is type(state)


@pytest.mark.parametrize("size", [10, 2000, 10_000])
def test_a_save_that_is_overtaken_keeps_the_state_that_it_was_given(store: Store, monkeypatch, size):
    """It is committed twice, and the caller may change the state from the first time on."""
    ours, other = store.client(), store.client()
    ours.save("a", session_id="s")
    first = other.save("b", session_id="s")  # which `ours` does not hear of
    state = {"text": "x" * size, "list": [1, 2]}
    bridge = ours._ctx.backend
    commit, commits = bridge.commit, []

    def commit_and_change(asked):
        commits.append(asked)
        state["list"].append(3)
        return commit(asked)

    monkeypatch.setattr(bridge, "commit", commit_and_change)
    saved = ours.restore(ours.save("a", execution_state=state, session_id="s"))
    assert len([one for one in commits if one.record]) == 2
    assert saved.execution_state == {"text": "x" * size, "list": [1, 2]}
    assert saved.parent_id == first
