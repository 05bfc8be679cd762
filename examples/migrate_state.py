"""A new release meets what the last one saved: its states are brought up to date when they are restored.

    python examples/migrate_state.py

A program has its migrations registered with @holdfast.migration. Here two releases run in one process, so each has a
registry of its own.
"""

from holdfast import Migrations, NewerStateError, SyncClient

STORE = "migrate_state.db"

release_1 = Migrations()
release_2 = Migrations()


@release_2.register("chat", from_version=1, to_version=2)
def split_the_messages(state):
    """Version 1 kept "role: text"; version 2 keeps the two apart."""
    state["messages"] = [dict(zip(("role", "text"), line.split(": ", 1), strict=True)) for line in state["messages"]]
    return state


with SyncClient.sqlite(STORE, migrations=release_1) as client:
    client.save(
        "chat", session_id="user-7", execution_state={"messages": ["user: hello", "assistant: hi"]}, state_version=1
    )
    client.save("chat", session_id="user-8", execution_state={"messages": ["garbled"]}, state_version=1)

with SyncClient.sqlite(STORE, migrations=release_2) as client:
    # Before it is deployed: which sessions would not resume?
    for problem in client.check_migrations().problems:
        print(f"{problem.session_id} would not resume: {problem.reason}")

    checkpoint = client.latest(session_id="user-7")
    print(f"version {checkpoint.stored_state_version} is restored as version {checkpoint.state_version}:")
    print(checkpoint.execution_state["messages"][0])
    client.save("chat", session_id="user-7", execution_state=checkpoint.execution_state)
    print("stored:", [entry.state_version for entry in client.timeline(session_id="user-7", limit=2)])

# A worker of the last release that is still running can't cover what it does not know.
with SyncClient.sqlite(STORE, migrations=release_1) as client:
    try:
        client.save("chat", session_id="user-7", execution_state={"messages": ["user: hello", "assistant: bye"]})
    except NewerStateError as refused:
        print(f"refused: {refused}")
