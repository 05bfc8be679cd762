"""Long conversations: say what was appended, and a save costs only that.

    python examples/declared_appends.py

Both sessions save the same states. One hands over the whole list of messages each time, and holdfast finds what is new;
the other says `append=`, and nothing else is even looked at. What is restored is the same.
"""

import time

from holdfast import SyncClient

TURNS = 150


def message(turn: int) -> dict[str, object]:
    return {"role": "user" if turn % 2 else "assistant", "turn": turn, "content": f"turn {turn} " * 150}


with SyncClient.sqlite(".holdfast/appends.db") as client:
    started = time.perf_counter()
    state: dict[str, object] = {"topic": "tides", "messages": []}
    whole_session = client.get(client.save(agent_id="chat", execution_state=state)).session_id
    for turn in range(TURNS):
        state["messages"] = [*state["messages"], message(turn)]
        client.save(agent_id="chat", session_id=whole_session, execution_state=state)
    whole_seconds = time.perf_counter() - started

    started = time.perf_counter()
    first = client.save(agent_id="chat", execution_state={"topic": "tides", "messages": []})
    append_session = client.get(first).session_id
    for turn in range(TURNS):
        client.save(
            agent_id="chat",
            session_id=append_session,
            execution_state={"topic": "tides"},
            append={"messages": [message(turn)]},
        )
    append_seconds = time.perf_counter() - started

    one = client.latest(session_id=whole_session)
    other = client.latest(session_id=append_session)
    assert one is not None
    assert other is not None
    assert one.execution_state == other.execution_state

    print(f"{TURNS} saves of the whole state   {whole_seconds / TURNS * 1000:6.2f} ms each")
    print(f"{TURNS} saves with append=         {append_seconds / TURNS * 1000:6.2f} ms each")
    print(f"restored the same {len(other.execution_state['messages'])} messages from both")
