"""sessions, timeline, show: output for people and for programs."""

import enum
import json
import time

import pytest

from holdfast import SyncClient, register


def test_sessions_lists_the_one_saved_to_last_first(run, made):
    result = run("sessions")
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["what-if", "main"]
    assert made.handed[-8:] in lines[2]
    assert result.stderr == ""


def test_sessions_of_an_agent(run, made):
    found = json.loads(run("sessions", "--agent", "approver", "--json").stdout)["sessions"]
    assert [session["session_id"] for session in found] == ["main"]
    assert found[0]["head"]["handoff_target"] == "approver"
    assert found[0]["saves"] == 3


def test_timeline_without_a_session_is_that_of_the_one_saved_to_last(run, made):
    assert json.loads(run("timeline", "--json").stdout)["session_id"] == "what-if"


def test_timeline_marks_the_head_and_the_handoff(run, made):
    lines = run("timeline", "main").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["step", "2", "1", "0"]
    assert lines[1].endswith("head, for approver")
    assert "decide" in lines[2]


def test_timeline_says_where_a_line_was_left(run, made):
    with SyncClient.sqlite(made.path) as client:
        client.rollback("main", to=made.first)
        client.save(agent_id="worker", session_id="main", step_name="again")
    newest = run("timeline", "main").stdout.splitlines()[1]
    assert "again" in newest
    assert newest.endswith(f"head, after {made.first[-8:]}")


def test_timeline_shows_as_many_as_asked_for_and_says_that_there_are_more(run, made):
    few = run("timeline", "main", "-n", "1")
    assert len(few.stdout.splitlines()) == 2
    assert "1 of 3" in few.stderr
    everything = run("timeline", "main", "-n", "0")
    assert len(everything.stdout.splitlines()) == 4
    assert "of 3" not in everything.stderr


def test_timeline_of_an_agent(run, made):
    found = json.loads(run("timeline", "main", "--agent", "approver", "--json").stdout)["checkpoints"]
    assert [entry["checkpoint_id"] for entry in found] == [made.handed]


def test_timeline_of_a_session_that_is_not_there(run, made):
    result = run("timeline", "nobody")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "holdfast sessions" in result.stderr


def test_graph_draws_both_branches_and_marks_the_heads(run, made):
    lines = run("timeline", "main", "--graph").stdout.splitlines()
    assert [line[:3] for line in lines] == ["●  ", "│ ●", "│ ●", "●─╯"]
    assert lines[0].endswith("◀ head of what-if")
    assert lines[1].endswith("for approver  ◀ head of main")
    assert made.first[-8:] in lines[3]


def test_graph_as_json(run, made):
    drawn = json.loads(run("timeline", "main", "--graph", "--json").stdout)
    assert drawn["heads"] == {"main": made.handed, "what-if": made.fork.checkpoint_id}
    assert [(one["checkpoint_id"], one["lane"]) for one in drawn["checkpoints"]] == [
        (made.fork.checkpoint_id, 0),
        (made.handed, 1),
        (made.second, 1),
        (made.first, 0),
    ]


def test_graph_marks_where_a_session_stands_when_its_head_has_expired(run, tmp_path):
    with SyncClient.sqlite(tmp_path / ".holdfast" / "store.db") as client:
        stays = client.save(agent_id="a", session_id="s")
        client.save(agent_id="a", session_id="s", ttl_seconds=0.01)
    time.sleep(0.02)
    assert run("timeline", "--graph").stdout.splitlines()[0].endswith("◀ head of s")
    assert json.loads(run("timeline", "--graph", "--json").stdout)["heads"] == {"s": stays}


@pytest.mark.parametrize("length", [8, 12, 32])
def test_show_takes_an_id_the_end_of_one_and_a_session(run, made, length):
    for ref in (made.handed, made.handed.upper(), made.handed.replace("-", "")[-length:], "main"):
        assert json.loads(run("show", ref, "--json").stdout)["checkpoint_id"] == made.handed


def test_show_lists_what_the_state_holds(run, made):
    shown = run("show", made.second).stdout
    assert "1 decide" in shown
    assert "messages             list of 2" in shown
    assert "total                Decimal('1.50')" in shown
    assert "(verified)" in shown


def test_show_prints_values_that_json_has_no_word_for(run, made):
    state = json.loads(run("show", made.second, "--state").stdout)
    assert state["$type"] == "dict"
    pairs = {json.dumps(key): value for key, value in state["value"]}
    assert pairs['"due"'] == {"$type": "datetime", "value": "2026-03-01T00:00:00+00:00"}
    assert pairs['"total"'] == {"$type": "Decimal", "value": "1.50"}
    assert pairs['"pair"'] == {"$type": "tuple", "value": [1, 2]}
    assert pairs["7"] == "seven"


def test_show_prints_the_context(run, made):
    assert json.loads(run("show", made.second, "--context").stdout) == {"invoice": "INV-1"}
    assert json.loads(run("show", made.second, "--context", "--path", "invoice").stdout) == "INV-1"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("messages.0", "one"),
        ("messages.-1.content", "two"),
        ("7", "seven"),
        ("pair.1", 2),
        ("messages[1].content", "two"),
        ("messages[-1].content", "two"),
    ],
)
def test_show_goes_along_a_path(run, made, path, value):
    assert json.loads(run("show", made.second, "--path", path).stdout) == value


@pytest.mark.parametrize(
    ("path", "said"),
    [("nothing", "messages, due"), ("messages.9", "list of 2"), ("messages[9]", "list of 2"), ("total.x", "Decimal")],
)
def test_a_path_that_leads_nowhere_says_what_is_there(run, made, path, said):
    result = run("show", made.second, "--path", path)
    assert (result.exit_code, result.stdout) == (3, "")
    assert said in result.stderr


def test_show_what_is_not_there(run, made):
    for ref in ("nobody", "00000000", "abc", "01939c5e-7c1b-7000-8a2f-0c4c1d9be2f1"):
        assert run("show", ref).exit_code == 3


def test_an_ambiguous_short_id_is_refused_and_the_ids_are_listed(run, tmp_path):
    ids = ["01939c5e-7c1b-7000-8a2f-0c4c1d9be2f1", "01939c5e-7c1b-7001-8a2f-0c4c1d9be2f1"]
    with SyncClient.sqlite(tmp_path / ".holdfast" / "store.db") as client:
        for id_ in ids:
            client.save(agent_id="a", session_id="s", checkpoint_id=id_)
    result = run("show", "1d9be2f1")
    assert result.exit_code == 2
    assert all(id_ in result.stderr for id_ in ids)


def test_an_expired_checkpoint_says_so(run, made):
    with SyncClient.sqlite(made.path) as client:
        client.expire(made.second)
    result = run("show", made.second)
    assert result.exit_code == 3
    assert "expired" in result.stderr


def test_objects_of_types_that_are_not_registered_here_are_shown(run, tmp_path):
    """The agent's program knows its classes; the command line does not, and shows them all the same."""
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Order:
        number: int

    class Mood(enum.Enum):
        GOOD = 1

    register(Order, name="cli-test-order")
    register(Mood, name="cli-test-mood")
    state = {"order": Order(7), "of": {Order(1)}, "mood": Mood.GOOD}
    with SyncClient.sqlite(tmp_path / ".holdfast" / "store.db") as client:
        client.save(agent_id="a", session_id="s", execution_state=state, note=Order(2))
    assert json.loads(run("show", "s", "--path", "order").stdout) == {"$type": "cli-test-order", "value": {"number": 7}}
    assert json.loads(run("show", "s", "--path", "order.number").stdout) == 7
    assert "object cli-test-order" in run("show", "s").stdout
    assert "cli-test-mood('GOOD')" in run("show", "s").stdout
    assert run("timeline").exit_code == 0


def test_deep_and_strange_states_are_shown(run, tmp_path):
    deep: object = "bottom"
    for _ in range(60):
        deep = ({1: deep},)
    state = {
        "deep": deep,
        "nan": float("nan"),
        "big": 2**20000,
        "raw": b"\x00\xff",
        "$type": "mine",
        "odd": "\ud800\x1b",
    }
    with SyncClient.sqlite(tmp_path / ".holdfast" / "store.db") as client:
        client.save(agent_id="a", session_id="s", execution_state=state)
    result = run("show", "s", "--state")
    assert result.exit_code == 0
    assert result.stdout.isascii()
    assert run("show", "s").exit_code == 0
    assert json.loads(run("show", "s", "--path", "nan").stdout) == {"$type": "float", "value": "nan"}


# -- search, raw, messages
# -------------------------------------------------------------------------------------------------

TALK = [
    {"role": "user", "content": "Pay the invoice\nof May"},
    {"role": "assistant", "content": "", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "pay", "arguments": '{"to": "bob", "amount": 5}'}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "paid \x1b[31m"},
    {"role": "assistant", "content": [
        {"type": "text", "text": "Looking"}, {"type": "tool_use", "id": "c2", "name": "look", "input": {"at": 1}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c2", "content": "seen"}]},
    {"type": "ai", "data": {"content": "Done", "tool_calls": [{"id": "c3", "name": "end", "args": {}}]}},
]  # fmt: skip


@pytest.fixture
def talk(tmp_path):
    with SyncClient.sqlite(tmp_path / ".holdfast" / "store.db") as client:
        return client.save(
            "a",
            session_id="talk",
            execution_state={"messages": TALK, "Invoice": {"number": 4821}, "raw": b"\x00\xff"},
            context={"about": "an INVOICE"},
        )


def test_search_finds_keys_and_values_and_its_paths_lead_there(run, talk):
    lines = run("show", "talk", "--search", "invoice").stdout.splitlines()
    assert lines == [
        "messages.0.content: Pay the invoice\\x0aof May",
        "Invoice: (the key)",
        "--context about: an INVOICE",
    ]
    assert run("show", "talk", "--search", "482").stdout == "Invoice.number: 4821\n"
    found = json.loads(run("show", "talk", "--search", "bob", "--json").stdout)["found"]
    assert [one["path"] for one in found] == ["messages.1.tool_calls.0.function.arguments"]
    for one in found:
        assert json.loads(run("show", "talk", "--path", one["path"]).stdout) == one["value"]


def test_search_for_what_is_nowhere(run, talk):
    result = run("show", "talk", "--search", "nowhere")
    assert (result.exit_code, result.stdout) == (3, "")
    assert run("show", "talk", "--search", "").exit_code == 2
    assert run("show", "talk", "--search", "x", "--state").exit_code == 2


def test_raw_prints_a_value_as_it_is(run, talk):
    assert run("show", "talk", "--path", "messages.0.content", "--raw").stdout == "Pay the invoice\nof May\n"
    assert run("show", "talk", "--path", "raw", "--raw").stdout_bytes == b"\x00\xff"
    assert run("show", "talk", "--path", "Invoice", "--raw").stdout == run("show", "talk", "--path", "Invoice").stdout
    assert run("show", "talk", "--raw").exit_code == 2


def test_messages_are_rendered_to_be_read(run, talk):
    assert run("show", "talk", "--messages").stdout.splitlines() == [
        "0 user",
        "  Pay the invoice",
        "  of May",
        "1 assistant",
        '  → pay(to="bob", amount=5)',
        "2 tool c1",
        "  paid \\x1b[31m",
        "3 assistant",
        "  Looking",
        "  → look(at=1)",
        "4 user",
        "  ← seen",
        "5 ai",
        "  Done",
        "  → end()",
    ]
    assert json.loads(run("show", "talk", "--messages", "--json").stdout) == TALK


def test_messages_of_a_framework_are_rendered_alike(run, tmp_path):
    call = {"part_kind": "tool-call", "tool_name": "pay", "args": {"invoice": 7}, "tool_call_id": "c1"}
    returned = {"part_kind": "tool-return", "tool_name": "pay", "content": {"receipt": 1}, "tool_call_id": "c1"}
    image = {"kind": "binary", "media_type": "image/png", "data": b"png"}
    talk = [
        {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": ["Pay", image]}]},
        {"kind": "response", "parts": [{"part_kind": "text", "content": "I will"}, call]},
        {"kind": "request", "parts": [returned]},
    ]
    with SyncClient.sqlite(tmp_path / ".holdfast" / "store.db") as client:
        client.save("a", "pydantic_ai", {"messages": talk}, session_id="s")
        client.save("a", "pydantic_ai", {"messages": [{"kind": 7, "parts": {"a": 1}}, {"parts": 7}]}, session_id="odd")
    shown = run("show", "s", "--messages").stdout.splitlines()
    assert shown == [
        "0 user", "  Pay", "  [blob, image/png]", "1 assistant", "  I will", "  → pay(invoice=7)", "2 tool pay",
        '  {"receipt": 1}',
    ]  # fmt: skip
    roles = [one["role"] for one in json.loads(run("show", "s", "--messages", "--json").stdout)]
    assert roles == ["user", "assistant", "tool"]
    assert run("show", "odd", "--messages").exit_code == 0


def test_messages_elsewhere_and_nowhere(run, tmp_path):
    with SyncClient.sqlite(tmp_path / ".holdfast" / "store.db") as client:
        client.save("a", session_id="s", execution_state={"inner": {"log": ["hello"]}, "messages": "none"})
    result = run("show", "s", "--messages")
    assert result.exit_code == 3
    assert "--path" in result.stderr
    assert run("show", "s", "--messages", "--path", "inner.log").stdout == "0 ?\n  hello\n"


@pytest.mark.parametrize("messages", [[{}], [{"content": 7}], [{"content": [None, 3, {"type": "image"}]}],
                                      [{"role": "assistant",
                                        "tool_calls": [7, {"function": {"arguments": "{"}}]}]])  # fmt: skip
def test_strange_messages_are_shown(run, tmp_path, messages):
    with SyncClient.sqlite(tmp_path / ".holdfast" / "store.db") as client:
        client.save("a", session_id="s", execution_state={"messages": messages})
    result = run("show", "s", "--messages")
    assert (result.exit_code, result.stderr) == (0, "")


def test_a_timeline_without_a_checkpoint_of_an_agent_says_so(run, made):
    result = run("timeline", "main", "--agent", "nobody")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no checkpoint of that agent" in result.stderr


@pytest.mark.parametrize("command", [["sessions"], ["timeline", "main"]])
def test_limit_is_the_long_form_of_n(run, made, command):
    limited = run(*command, "--limit", "1")
    assert limited.exit_code == 0
    assert limited.stdout == run(*command, "-n", "1").stdout != run(*command).stdout


def test_a_short_file_that_is_no_store_is_named_as_such_and_kept(run, tmp_path):
    notes = tmp_path / "notes.txt"
    notes.write_text("hello\n")
    result = run("--store", str(notes), "sessions")
    assert result.exit_code == 5
    assert "is not a SQLite database" in result.stderr
    assert "name another file" in result.stderr
    assert notes.read_text() == "hello\n"
