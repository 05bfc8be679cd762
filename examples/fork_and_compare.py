"""Go back to a decision, decide otherwise, and compare where both ways lead.

    python examples/fork_and_compare.py
    holdfast --store .holdfast/forks.db timeline --graph trip

A fork is a session of its own that shares its past with the first one: nothing is copied, nothing is overwritten.
"""

from holdfast import SyncClient

PRICES = {"train": 89, "plane": 140}
HOURS = {"train": 9, "plane": 3}


def travel(client: SyncClient, session: str, means: str) -> None:
    """The rest of the trip, from wherever the session stands."""
    checkpoint = client.latest(session_id=session)
    assert checkpoint is not None
    state = checkpoint.execution_state
    state["means"] = means
    client.save(agent_id="planner", session_id=session, execution_state=state, step_name="choose")
    state["price"], state["hours"] = PRICES[means], HOURS[means]
    client.save(agent_id="planner", session_id=session, execution_state=state, step_name="book")


with SyncClient.sqlite(".holdfast/forks.db") as client:
    if client.latest(session_id="trip"):
        raise SystemExit("this example has been run here: remove .holdfast/forks.db to run it again")

    client.save(agent_id="planner", session_id="trip", execution_state={"to": "Brest"}, step_name="ask")
    before = client.save(
        agent_id="planner",
        session_id="trip",
        execution_state={"to": "Brest", "options": list(PRICES)},
        step_name="search",
    )
    travel(client, "trip", "train")

    fork = client.fork(before, session_id="trip-by-air")
    travel(client, fork.session_id, "plane")

    for session in ("trip", "trip-by-air"):
        end = client.latest(session_id=session)
        assert end is not None
        state = end.execution_state
        print(f"{session:12} {state['means']:6} {state['price']:4} EUR {state['hours']:2} h")

    tree = client.tree("trip")
    shared = tree.common_ancestor(tree.heads["trip"], tree.heads["trip-by-air"])
    assert shared == before
    print(f"they part after step {client.get(before).step_index}, {client.get(before).step_name!r}")
