"""`holdfast convert`: the printed plan, refusals, and the new session."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast import SyncClient

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
CALL = {"id": "c1", "type": "function", "function": {"name": "pay", "arguments": '{"to": "bob"}'}}
PAID: list[Any] = [
    {"role": "system", "content": "Pay once."},
    {"role": "user", "content": [{"type": "text", "text": "pay bob"}, IMAGE]},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "paid"},
    {"role": "assistant", "content": "Bob is paid."},
]


@pytest.fixture
def store(tmp_path, monkeypatch) -> str:
    path = str(tmp_path / "a.db")
    with SyncClient.sqlite(path) as client:
        client.save("loop", session_id="s", execution_state={"messages": PAID, "plan": ["a"]})
        client.save("loop", session_id="open", execution_state={"messages": PAID[:3]})
        link = {"type": "image_url", "image_url": {"url": "https://a.example/x.png"}}
        client.save("loop", session_id="link", execution_state={"messages": [{"role": "user", "content": [link]}]})
    monkeypatch.setenv("HOLDFAST_URL", path)
    return path


def test_the_plan_says_what_is_lost_and_saves_nothing(run, store):
    result = run("convert", "s", "--to", "crewai")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].endswith("to CrewAI: 4 messages")
    assert "instructions" in result.stdout and "state.plan" in result.stdout
    assert "add --save" in result.stderr
    with SyncClient.sqlite(store) as client:
        assert len(client.sessions()) == 3


def test_save_makes_a_session_and_says_how_to_go_on_and_back(run, store):
    result = run("convert", "s", "--to", "openai_agents", "--carry", "plan=todo", "--messages", "--save")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "session s-openai_agents-1"
    assert "holdfast.openai_agents.resumable, with the session s-openai_agents-1" in result.stderr
    assert "undo" in result.stderr
    assert "→ pay" in result.stdout and "Bob is paid." in result.stdout
    with SyncClient.sqlite(store) as client:
        head = client.latest("s-openai_agents-1")
        assert (head.framework, head.agent_id, head.agent_context) == ("openai_agents", "loop", {"todo": ["a"]})
    assert run("undo", "--yes").exit_code == 0
    with SyncClient.sqlite(store) as client:
        assert client.session("s-openai_agents-1") is None


def test_a_thread_of_langgraph_is_named_and_converted_back_without_langchain(run, store):
    result = run("convert", "s", "--to", "langgraph", "--save", "--session", "t")
    assert result.stdout.splitlines()[-1] == "session lg/t"
    assert "the thread t" in result.stderr
    result = run("convert", "lg/t", "--to", "anthropic", "--json")
    assert [one["role"] for one in json.loads(result.stdout)["messages"]] == ["user", "assistant", "tool", "assistant"]


def test_json_has_the_whole_plan_with_images(run, store):
    found = json.loads(run("convert", "s", "--to", "pydantic_ai", "--json").stdout)
    assert (found["framework"], found["session_id"], found["instructions"]) == ("pydantic_ai", None, ["Pay once."])
    assert {one["kind"] for one in found["losses"]} == {"instructions", "state"}
    assert found["messages"][0]["parts"][1]["type"] == "blob"


def test_refusals_speak_of_options(run, store):
    result = run("convert", "open", "--to", "crewai")
    assert result.exit_code == 1
    assert "--dangling" in result.stderr and "dangling=" not in result.stderr
    assert run("convert", "open", "--to", "crewai", "--dangling", "answer").exit_code == 0
    result = run("convert", "link", "--to", "autogen")
    assert result.exit_code == 1 and "Accept it: --accept image_links;" in result.stderr
    assert run("convert", "link", "--to", "autogen", "--accept", "image_links").exit_code == 0
    result = run("convert", "s", "--to", "claude_agent")
    assert result.exit_code == 2 and "not public" in result.stderr
    result = run("convert", "s", "--to", "crewai", "--session", "x")
    assert result.exit_code == 2 and "--save" in result.stderr
    with SyncClient.sqlite(store) as client:
        client.save("loop", session_id="held", execution_state={"messages": PAID})
        with client.lease("held", seconds=60):
            result = run("convert", "held", "--to", "crewai")
    assert result.exit_code == 4 and "--while-running" in result.stderr


def test_tools_that_the_target_lacks_become_notes(run, store):
    found = json.loads(run("convert", "s", "--to", "crewai", "--tool", "search", "--json").stdout)
    assert "tool_calls" in {one["kind"] for one in found["losses"]}
    assert not [part for one in found["messages"] for part in one["parts"] if part["type"] == "tool_call"]
    found = json.loads(run("convert", "s", "--to", "crewai", "--tool", "pay=send", "--json").stdout)
    assert [p["name"] for m in found["messages"] for p in m["parts"] if p["type"] == "tool_call"] == ["send"]
