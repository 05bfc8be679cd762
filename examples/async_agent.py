"""Many agents in one event loop, one store. Saves that arrive together are committed together.

python examples/async_agent.py       # each run takes every conversation five turns further
"""

import asyncio
import time

from holdfast import Client

CONVERSATIONS = 50
TURNS = 5


async def converse(client: Client, session: str) -> int:
    """Goes on with one conversation; returns how long it is now."""
    checkpoint = await client.latest(session_id=session)
    state = checkpoint.execution_state if checkpoint else {"messages": []}
    for _ in range(TURNS):
        await asyncio.sleep(0)  # stands for a call to a model
        state["messages"].append({"role": "user", "content": f"message {len(state['messages'])}"})
        await client.save(agent_id="chat", session_id=session, execution_state=state)
    return len(state["messages"])


async def main() -> None:
    async with Client.sqlite(".holdfast/async.db") as client:
        started = time.perf_counter()
        lengths = await asyncio.gather(*(converse(client, f"chat-{number}") for number in range(CONVERSATIONS)))
        seconds = time.perf_counter() - started
        saves = CONVERSATIONS * TURNS
        print(f"{saves} durable saves in {seconds:.2f} s, {saves / seconds:.0f} a second")
        print(f"{len(await client.sessions())} conversations, of {min(lengths)} to {max(lengths)} messages")


asyncio.run(main())
