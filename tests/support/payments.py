"""An agent loop for crash tests: a scripted model pays invoices, and delegates some to a sub-agent.

The model is a function of the conversation alone, as real ones are after a crash. It reads what its
tools answer: what was refused it asks for again; what is unknown it asks for again once the user
says that the doubts are settled, or, if it is rash, at once as well. A decision is what it wants
done once; each time it asks, the call has another id.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from effect_world import World

from holdfast import SyncClient, agent, tool

LONGEST = 0.3
ATTEMPTS = 12  # of one decision, until the model gives it up
AT_ONCE = 3  # calls in one message
SETTLED = "The doubts are settled. Go on."

Decision = tuple[str, str, dict[str, Any]]  # a name, a tool and its arguments


def payments(number: int, first: int, count: int) -> list[Decision]:
    return [(f"pay{nth}", "pay", {"invoice": f"{number}-{nth}"}) for nth in range(first, first + count)]


def decisions(number: int) -> list[Decision]:
    """What the model wants, in its order. Two tips are equal, and are two decisions all the same."""
    tips: list[Decision] = [(f"tip{nth}", "tip", {"to": f"driver-{number}"}) for nth in range(2)]
    inner = json.dumps(payments(number, 4, 2))
    return [
        *payments(number, 0, 2), ("test0", "bash", {"command": "make test"}), *tips,
        ("delegate", "payer", {"prompt": inner}),
        ("test1", "bash", {"command": "make test"}), *payments(number, 2, 2),
    ]  # fmt: skip


def wanted(number: int) -> dict[str, Counter[str]]:
    invoices = Counter(f"{number}-{nth}" for nth in range(6))
    return {"pay": invoices, "tip": Counter({f"driver-{number}": 2})}


# -- the model ---------------------------------------------------------------------------------------------------------


def model(messages: Sequence[Mapping[str, Any]], tools: Any) -> Any:
    """What is to be done follows from the first message of the user."""
    return StoreQueries(messages).reply()


class StoreQueries:
    """The conversation, as the model reads it: what became of each decision."""

    def __init__(self, messages: Sequence[Mapping[str, Any]]) -> None:
        [plan, *_] = [one["content"] for one in messages if one["role"] == "user"]
        self.plan: list[Decision] = [tuple(one) for one in json.loads(plan)]
        self.is_rash = sum(map(ord, plan)) % 2 == 0
        self.answers: dict[str, list[str]] = {name: [] for name, _, _ in self.plan}
        self.told_since: dict[str, bool] = {}  # whether the user has spoken since it was answered
        for one in messages:
            if one["role"] == "tool":
                name = one["tool_call_id"].partition(".")[0]
                self.answers[name].append(one["content"])
                self.told_since[name] = False
            elif one["role"] == "user":
                self.told_since = dict.fromkeys(self.told_since, True)

    def reply(self) -> Any:
        ready = [one for one in self.plan if self._asks(*one)][:AT_ONCE]
        if ready:
            calls = [self._call(*one) for one in ready]
            return {"role": "assistant", "content": None, "tool_calls": calls}
        left = [one for one in self.plan if not self._is_done(one[0])]
        return json.dumps({"left": [self._remaining(*one) for one in left]})

    def _asks(self, name: str, tool: str, arguments: Any) -> bool:
        answers = self.answers[name]
        if not answers or len(answers) >= ATTEMPTS or self._is_done(name):
            return not answers
        if tool == "payer":
            return self.told_since[name]
        is_unknown = answers[-1].startswith("It is unknown")
        if not is_unknown or tool == "bash":
            return True
        is_first = len(answers) == 1 or not answers[-2].startswith("It is unknown")
        return self.told_since[name] or (self.is_rash and is_first)

    def _is_done(self, name: str) -> bool:
        answers = self.answers[name]
        return bool(answers) and (answers[-1].startswith("receipt: ") or answers[-1] == '{"left": []}')

    def _call(self, name: str, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        name_of_call = f"{name}.{len(self.answers[name])}"
        _, _, arguments = self._remaining(name, tool, arguments)
        return {"id": name_of_call, "type": "function", "function": {"name": tool, "arguments": json.dumps(arguments)}}

    def _remaining(self, name: str, tool: str, arguments: dict[str, Any]) -> Decision:
        """A decision, or what is left of one that was given to another agent."""
        answers = self.answers[name]
        if tool == "payer" and answers and answers[-1].startswith('{"left"'):
            return name, tool, {"prompt": json.dumps(json.loads(answers[-1])["left"])}
        return name, tool, arguments


# -- its tools, and a life ---------------------------------------------------------------------------------------------


def live(begun: Callable[[], object], url: str, session: str, world: World, number: int, *, is_control: bool) -> str:
    kind = "read" if is_control else "irreversible"  # what only reads is made again, and no ledger knows of it

    @tool(kind=kind, identity=("invoice",))
    def pay(invoice: str, idempotency_key: str = "") -> str:
        return world.do("pay", invoice, idempotency_key)

    @tool(kind=kind)
    def tip(to: str, idempotency_key: str = "") -> str:
        return world.do("tip", to, idempotency_key)

    def bash(command: str, idempotency_key: str = "") -> str:
        return world.do("bash", command, idempotency_key)

    with SyncClient.open(url) as client:
        payer = agent(model=model, tools=[pay], sync=True).as_tool("payer", "Pays what it is given.")
        bot = agent(model=model, tools=[pay, tip, bash, payer], checkpoints=client, session_id=session)
        state = bot.load()
        begun()
        turn = bot.generate(json.dumps(decisions(number)) if state is None else None)
        if turn.text != '{"left": []}' and state is not None and turn.state.id == state.id:
            turn = bot.generate(SETTLED)  # it had said that it waits, and was waited for
        for message in turn.state.messages:
            if message["role"] == "tool" and message["metadata"]["fate"] == "failed":
                world.note("blocked", f"{message['tool_call_id']}: {message['content']}")
    return "done" if turn.text == '{"left": []}' else f"waiting: {turn.text}"
