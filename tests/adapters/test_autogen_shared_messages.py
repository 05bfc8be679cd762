"""What AutoGen's state repeats of a conversation: dropped and restored, without AutoGen."""

from __future__ import annotations

from typing import Any

from holdfast.adapters.autogen.shared_messages import drop_shared, restore_shared

USER = {"id": "1", "source": "user", "type": "TextMessage", "content": "hello"}
THOUGHT = {"id": "2", "source": "a", "type": "ThoughtEvent", "content": "hm"}
CALLS = [{"id": "c", "name": "look", "arguments": "{}"}]
RESULTS = [{"content": "sunny", "name": "look", "call_id": "c", "is_error": False}]
REQUEST = {"id": "3", "source": "a", "type": "ToolCallRequestEvent", "content": CALLS}
RESULT = {"id": "4", "source": "a", "type": "ToolCallExecutionEvent", "content": RESULTS}
SAID = {"id": "5", "source": "a", "type": "TextMessage", "content": "it is sunny"}
MESSAGES = [USER, THOUGHT, REQUEST, RESULT, SAID]
OF_A: list[dict[str, Any]] = [
    {"content": "hello", "source": "user", "type": "UserMessage"},
    {"content": CALLS, "thought": "hm", "source": "a", "type": "AssistantMessage"},
    {"content": RESULTS, "type": "FunctionExecutionResultMessage"},
    {"content": "it is sunny", "source": "a", "thought": None, "type": "AssistantMessage"},
]
OF_B = [OF_A[0], {"content": "it is sunny", "source": "a", "type": "UserMessage"}]


def make_team(of_a: Any, of_b: Any, thread: Any) -> dict[str, Any]:
    def agent(context: Any) -> dict[str, Any]:
        return {
            "agent_state": {"type": "AssistantAgentState", "llm_context": {"messages": context}},
            "message_buffer": [],
        }

    return {
        "agent_states": {"a": agent(of_a), "b": agent(of_b), "Manager": {"message_thread": thread, "current_turn": 0}}
    }


def test_a_team_stores_its_conversation_once():
    native = make_team(OF_A, OF_B, MESSAGES)
    dropped = drop_shared(native, MESSAGES, "team")
    assert dropped == make_team(4, 2, 5)
    restored = restore_shared(dropped, MESSAGES, "team")
    without_empty = [{name: value for name, value in one.items() if value is not None} for one in OF_A]
    assert restored == make_team(without_empty, OF_B, MESSAGES)


def test_an_agent_that_has_heard_less_has_less():
    native = {"llm_context": {"messages": OF_A[:2]}}
    assert restore_shared(drop_shared(native, MESSAGES, "a"), MESSAGES, "a") == native


def test_what_the_conversation_does_not_tell_is_stored_as_it_is():
    other = [OF_A[0], {"content": "a summary", "source": "a", "type": "UserMessage"}]
    for native in ({"llm_context": {"messages": other}}, {"llm_context": {"messages": []}}, {"inner": 1}):
        assert drop_shared(native, MESSAGES, "a") == native
        assert restore_shared(native, MESSAGES, "a") == native
    longer = {"message_thread": [*MESSAGES, {**SAID, "id": "6"}]}
    assert drop_shared(longer, MESSAGES, "a") == longer
