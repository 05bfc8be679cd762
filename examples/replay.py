"""Run an agent's program once more from a checkpoint: with its recorded answers, with live ones, or with both.

    python examples/replay.py
    holdfast --store .holdfast/replays.db compare trip trip-cheaper

A replay works on a fork: the first session stays as it is, and nothing that was booked is booked again.
"""

from holdfast import SyncClient, SyncRun

OFFERS = {"Brest": {"train": 89, "plane": 140}}


def search(to: str) -> dict[str, int]:
    print(f"  (searching for {to})")
    return OFFERS[to]


def choose(offers: dict[str, int], budget: int) -> str:
    print(f"  (choosing for {budget} EUR)")
    return max((name for name, price in offers.items() if price <= budget), key=lambda name: offers[name])


def book(means: str) -> str:
    print(f"  (booking the {means})")
    return f"ticket for the {means}"


def plan_a_trip(run: SyncRun) -> str:
    offers = run.step("search", search, run.state["to"])
    means = run.step("choose", choose, offers, run.state["budget"])
    ticket: str = run.effect("book", book, means, kind="reversible")
    run.state["ticket"] = ticket
    return ticket


with SyncClient.sqlite(".holdfast/replays.db") as client:
    if client.session("trip"):
        raise SystemExit("this example has been run here: remove .holdfast/replays.db to run it again")

    print("the first time:")
    with client.run("trip", agent_id="planner", state={"to": "Brest", "budget": 200}) as run:
        plan_a_trip(run)

    print("recorded: nothing is called")
    print(client.replay("trip", plan_a_trip).text())

    print("mixed, with a smaller budget: the search is served, the choice is asked something else")
    report = client.replay("trip", plan_a_trip, mode="mixed", set={"budget": 100}, name="trip-cheaper")
    print(report.text())
    assert report.result == "ticket for the train"
