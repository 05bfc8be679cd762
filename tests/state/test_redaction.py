"""Redaction in a store: what rules meet is in no byte that is written, whichever way it came in; and what comes back
instead is a reference."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pydantic
import pytest
from stores import Recorder, Store, messages

from holdfast import (
    ApprovalPendingError,
    EffectUnknownError,
    RedactedValue,
    StepFailedError,
    SyncClient,
    UnsupportedValueError,
    UsageError,
)
from holdfast.format import frame
from holdfast.redaction import by_path, by_pattern, is_redacted

SECRET = "canary-7f3a9c"
LATER = "canary-of-a-later-element"
RULES = (by_path("**.api_key"), by_pattern(r"canary-[a-z0-9]+", label="canary"))


def texts_in(value: Any) -> Iterator[bytes]:
    """All texts and bytes in what a backend is given, compressed ones also as they were before."""
    if isinstance(value, str):
        yield value.encode("utf-8", "surrogatepass")
    elif isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        yield data
        if data[:1] == frame.ZSTD:
            try:
                yield frame.content(data)
            except Exception:  # it was no frame
                return
    elif isinstance(value, dict):
        for one in (*value.keys(), *value.values()):
            yield from texts_in(one)
    elif isinstance(value, list | tuple | set | frozenset):
        for one in value:
            yield from texts_in(one)
    elif dataclasses.is_dataclass(value):
        for one in dataclasses.fields(value):
            yield from texts_in(getattr(value, one.name))


def written(recorder: Recorder) -> bytes:
    return b"\n".join(text for commit in recorder.commits for text in texts_in(commit))


def on_disk(where: Path) -> bytes:
    return b"\n".join(one.read_bytes() for one in where.rglob("*") if one.is_file())


class BankError(Exception):
    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.api_key = SECRET


def fail() -> None:
    raise BankError(f"the bank refused {SECRET}")


def pay(to: str, api_key: Any = None) -> dict[str, Any]:
    return {"to": to, "api_key": SECRET}


def live_through(client: SyncClient) -> None:
    """Brings the secret into every place that a program can bring it into."""
    state = {
        "user": {"api_key": SECRET, "name": "ann"},
        "secret": pydantic.SecretStr(SECRET),
        "long": "x" * 5000 + SECRET,
        "raw": b"\xff" * 5000 + SECRET.encode(),
        "messages": [{**one, "api_key": SECRET} for one in messages(20)],
    }
    client.save(
        "a",
        execution_state=state,
        context={"api_key": [SECRET], "n": 1},
        session_id="s",
        tasks=[{"id": "t", "api_key": SECRET}],
        note={"api_key": SECRET},
    )
    client.save("a", append={"messages": [{"api_key": LATER, "content": "plain"}]}, session_id="s")
    client.save("a", execution_state={"messages": [*state["messages"], {"api_key": LATER}]}, session_id="s")
    with client.run("run", agent_id="a") as run:
        run.state["api_key"] = SECRET
        run.step("look", lambda: {"api_key": SECRET, "text": f"it is {SECRET}"})
        run.effect("pay", pay, "bob", SECRET)
        run.effect("pay", pay, "bob", pydantic.SecretStr(SECRET), kind="idempotent")
        with pytest.raises(BankError):
            run.effect("refund", fail, kind="idempotent")
        with pytest.raises(BankError):
            run.step("ask", fail)
    with pytest.raises((EffectUnknownError, BankError)), client.run("failing") as run:
        run.effect("transfer", fail)
    with pytest.raises(ApprovalPendingError), client.run("approved") as run:
        run.effect("pay", pay, "bob", SECRET, approve="finance")
    [waiting] = client.approvals("approved")
    client.decide(waiting.approval_id, "modify", by="ann", arguments={"to": "eve", "api_key": SECRET})


@pytest.mark.every_store
def test_a_secret_is_in_no_byte_that_is_written(store: Store):
    client, recorder = store.recorded(redact=RULES)
    live_through(client)
    found = written(recorder)
    assert SECRET.encode() not in found
    assert b"canary-of-a" not in found
    assert b"plain" in found
    if store.kind in ("files", "sqlite"):
        assert SECRET.encode() not in on_disk(store.where)


def test_the_search_finds_it_where_no_rule_meets_it(memory_store: Store):
    client, recorder = memory_store.recorded()
    client.save("a", execution_state={"long": "x" * 5000 + SECRET, "api_key": "k"}, session_id="s")
    assert SECRET.encode() in written(recorder)


@pytest.mark.every_store
def test_what_comes_back_is_a_reference_and_may_be_saved_again(store: Store):
    client = store.client(redact=RULES)
    live_through(client)
    first = client.restore([*client.timeline("s")][-1].checkpoint_id)
    state = first.execution_state
    assert state["user"] == {"api_key": RedactedValue("str", "path **.api_key"), "name": "ann"}
    assert isinstance(state["secret"], pydantic.SecretStr)
    assert (state["long"].rule, state["raw"].type) == ("pattern canary", "bytes")
    assert state["messages"][0]["content"].startswith("message 0")
    assert all(is_redacted(one["api_key"]) for one in state["messages"])
    assert first.agent_context == {"api_key": RedactedValue("list", "path **.api_key"), "n": 1}
    assert is_redacted(first.metadata["note"]["api_key"])
    head = client.latest("s")
    assert len(head.execution_state["messages"]) == 21

    for other in (store.client(redact=RULES), store.client(), store.client(redact=False)):
        again = other.save("a", execution_state=head.execution_state, context=head.agent_context, session_id="s")
        assert not client.diff(head.checkpoint_id, again).edits
    forked = client.fork(head.checkpoint_id).session_id
    assert client.latest(forked).execution_state == head.execution_state
    assert client.verify().ok


def test_a_run_gives_references_for_recorded_secrets(memory_store: Store):
    client = memory_store.client(redact=RULES)
    results: list[Any] = []

    def program() -> None:
        with client.run("s") as run:
            results.append(run.step("look", lambda: {"api_key": SECRET}))
            results.append(run.effect("pay", pay, "bob", SECRET))
            try:
                run.step("ask", fail)
            except BankError as error:
                results.append(str(error))
            except StepFailedError as error:
                results.append(str(error))

    for _ in range(2):
        program()
    assert results[0] == {"api_key": SECRET}  # of this life: its own value
    assert all(is_redacted(one["api_key"]) for one in results[3:5])
    assert SECRET not in results[5]
    assert "<redacted str>" in results[5]
    [effect] = client.effects("s")
    assert effect.arguments == {"to": "bob", "api_key": RedactedValue("str", "path **.api_key")}
    assert is_redacted(effect.result["api_key"])


def test_calls_that_differ_by_a_secret_alone_are_one_call(memory_store: Store):
    """No fingerprint of a secret is stored, so none can tell two calls apart."""
    client, seen = memory_store.client(redact=RULES), []

    def keep(api_key: str) -> None:
        seen.append(api_key)

    for key in ("one", "two"):
        with client.run("s") as run:
            run.effect("pay", keep, key)
    assert seen == ["one"]


def test_a_rule_made_later_leaves_out_what_is_appended(memory_store: Store):
    before, (client, recorder) = memory_store.client(), memory_store.recorded(redact=by_path("**.messages"))
    before.save("a", execution_state={"messages": messages(20)}, session_id="s")
    client.save("a", append={"messages": [{"content": SECRET}]}, session_id="s")
    assert SECRET.encode() not in written(recorder)
    assert before.latest("s").execution_state == {"messages": RedactedValue("list", "path **.messages")}


def test_equal_states_have_equal_checksums_whatever_the_secret_is(memory_store: Store):
    client = memory_store.client(redact=RULES)
    saved = [client.save("a", execution_state={"api_key": key}, session_id=f"s{key}") for key in ("one", "two")]
    states = [client.restore(id_).execution_state for id_ in saved]
    assert states[0] == states[1]


def test_a_save_that_is_refused_writes_nothing(memory_store: Store):
    client, recorder = memory_store.recorded(redact=by_path("**.api_key", action="refuse"))
    with pytest.raises(UnsupportedValueError, match=r"execution_state\.user\.api_key") as refused:
        client.save("a", execution_state={"user": {"api_key": SECRET}}, session_id="s")
    assert SECRET not in str(refused.value)
    assert not recorder.commits


def test_redact_takes_rules(memory_store: Store):
    with pytest.raises(UsageError, match="redact takes rules"):
        memory_store.client(redact="**.api_key")


def test_nothing_is_lost_by_a_copy_or_a_bundle(memory_store: Store, tmp_path: Path):
    client, other = memory_store.client(redact=RULES), SyncClient.memory()
    live_through(client)
    client.export(tmp_path / "all.holdfast")
    assert SECRET.encode() not in (tmp_path / "all.holdfast").read_bytes()
    client.copy_to(other)
    assert other.latest("s").checksum == client.latest("s").checksum
    assert other.latest("s").execution_state == client.latest("s").execution_state


# -- scan --------------------------------------------------------------------------------------------------------------


@pytest.mark.every_store
def test_a_scan_names_paths_and_never_values(store: Store):
    client = store.client()
    with client.run("s", agent_id="a") as run:
        run.state["login"] = {"password": SECRET}
        run.effect("pay", pay, "bob", SECRET)
    client.save("a", execution_state={"deep": [{"password": SECRET}], "x": f"sk-ant-{'a' * 30}"}, session_id="t")
    report = client.scan()
    assert SECRET not in repr(report)
    assert (report.checked, report.ok, bool(report)) == (2, False, False)
    assert {(one.session_id, one.path.rpartition(": ")[2], one.rule) for one in report.findings} == {
        ("s", "execution_state.login.password", "path **.password"),
        ("s", "arguments.api_key", "path **.api_key"),
        ("s", "identity.api_key", "path **.api_key"),
        ("s", "result.api_key", "path **.api_key"),
        ("t", "execution_state.deep[0].password", "path **.password"),
        ("t", "execution_state.x", "pattern Anthropic key"),
    }
    assert {one.checkpoint_id for one in report.findings if one.session_id == "t"} == {client.latest("t").checkpoint_id}


def test_a_scan_of_one_session_of_all_checkpoints_and_by_own_rules(memory_store: Store):
    client = memory_store.client()
    for session in ("s", "t"):
        client.save("a", execution_state={"mine": SECRET}, session_id=session)
        client.save("a", execution_state={}, session_id=session)
    rules = by_path("**.mine")
    assert client.scan(rules).ok
    assert len(client.scan(rules, every=True).findings) == 2
    [one] = client.scan(rules, "s", every=True).findings
    assert (one.session_id, one.path, one.type) == ("s", "execution_state.mine", "str")
    assert client.scan(every=True).ok
    assert client.scan(rules, "unknown").checked == 0


def test_a_scan_finds_nothing_in_what_rules_left_out(memory_store: Store):
    client = memory_store.client(redact=RULES)
    live_through(client)
    assert client.scan(every=True).ok


def test_a_scan_reads_objects_of_classes_that_are_gone(memory_store: Store):
    import holdfast

    types = holdfast.TypeRegistry()

    @dataclasses.dataclass
    class Login:
        password: str

    types.register(Login)
    memory_store.client(types=types).save("a", execution_state={"login": Login(SECRET)}, session_id="s")
    [one] = memory_store.client(types=holdfast.TypeRegistry()).scan().findings
    assert one.path == "execution_state.login.password"


def test_an_edit_of_a_secret_is_refused_and_does_not_show_the_new_one(memory_store: Store):
    client, recorder = memory_store.recorded(redact=RULES)
    saved = client.save("a", execution_state={"api_key": SECRET, "token": pydantic.SecretStr(SECRET)}, session_id="s")
    for name in ("api_key", "token"):
        with pytest.raises(UsageError, match="secret that was left out") as caught:
            client.fork(saved, session_id=f"f-{name}", set={name: SECRET})
        assert SECRET not in str(caught.value)
    assert SECRET.encode() not in written(recorder)
