"""Random programs with effects, killed at random moments and restarted until they end.

    python random_programs.py <directory> <first seed> <number of programs>

A program nests effects, steps, lists of tasks and sub-agents. An effect has a key, or arguments of
its own. Each life is a process that kills itself with SIGKILL at a random moment: before or after a
thing is done, or between two calls. A scripted person resolves what is in doubt between two lives.
Prints a JSON line for each program.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from effect_world import RefusedError, World, receipt

from holdfast import NOT_DONE, Done, EffectBlockedError, EffectUnknownError, SyncClient

KILLS = 8  # of a program
LIVES = 60  # until a program must have finished
DEPTH = 3


class WaitsError(Exception):
    """A task waits for a person."""


class Node(NamedTuple):
    """A part of a program: an effect, or what has other parts in it."""

    kind: str
    name: str
    inner: tuple[Node, ...] = ()
    how: dict[str, Any] = {}  # noqa: RUF012 - nothing writes to it
    times: int = 1


def make_program(chance: random.Random, path: str = "n", depth: int = 0) -> tuple[Node, ...]:
    return tuple(make_node(chance, f"{path}.{nth}", depth) for nth in range(chance.randint(1, 3)))


def make_node(chance: random.Random, path: str, depth: int) -> Node:
    kind = "effect" if depth == DEPTH else chance.choice(["effect", "effect", "step", "tasks", "subagent"])
    if kind == "effect":
        has_key, is_declared = chance.choice([(True, False), (False, True), (False, False)])
        is_refused, is_probed = chance.random() < 0.2, chance.random() < 0.25
        how = {"key": has_key, "identity": is_declared, "refused": is_refused, "probe": is_probed}
        return Node(kind, path, how=how)
    inner = make_program(chance, path, depth + 1)
    if kind == "tasks":
        return Node(kind, path, inner, {"catches": chance.random() < 0.6}, chance.randint(1, 3))
    return Node(kind, path, inner, {"has_id": chance.random() < 0.5, "skips": chance.random() < 0.5})


def wanted(nodes: Sequence[Node], times: int = 1) -> Counter[str]:
    """How often each effect must have been carried out in the end."""
    found: Counter[str] = Counter()
    for node in nodes:
        found += wanted(node.inner, times * node.times) if node.inner else Counter({node.name: times})
    return found


class Life:
    """One life of a program, which ends at a moment by SIGKILL; with 0 by itself."""

    def __init__(self, world: World, fatal: int) -> None:
        self._world = world
        self._left = fatal
        self.is_waiting = False

    def run(self, run: Any, nodes: Sequence[Node], tasks: str = "") -> None:
        for node in nodes:
            getattr(self, f"_{node.kind}")(run, node, tasks)
            self._moment()

    def _moment(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def _effect(self, run: Any, node: Node, tasks: str) -> None:
        def act(decision: str, *, idempotency_key: str) -> str:
            self._moment()
            if node.how["refused"]:
                self._world.refuse_once("act", f"{tasks}{decision}")
            self._world.note("act", decision, idempotency_key)
            self._moment()
            return receipt("act", decision)

        def find(decision: str, *, idempotency_key: str) -> Any:
            return NOT_DONE if self._world.find(idempotency_key) is None else Done(receipt("act", decision))

        how: dict[str, Any] = {"not_done": (RefusedError,), "probe": find if node.how["probe"] else None}
        how |= {"key": node.name} if node.how["key"] else {}
        how |= {"identity": "decision"} if node.how["identity"] else {}
        for _ in range(3):
            try:
                run.effect("act", act, node.name, **how)
            except RefusedError:
                self._moment()
                continue
            return
        raise AssertionError(f"{node.name} was refused more than once")

    def _step(self, run: Any, node: Node, tasks: str) -> None:
        run.step("step", lambda: self.run(run, node.inner, tasks), raises=(EffectUnknownError, WaitsError))

    def _tasks(self, run: Any, node: Node, tasks: str) -> None:
        is_waiting = False
        for task in run.tasks(node.name, range(node.times), retry_failed=True):
            try:
                self.run(run, node.inner, f"{tasks}{task.id}/")
            except (EffectUnknownError, WaitsError):
                if not node.how["catches"]:
                    raise
                task.fail("it waits for a person")
                is_waiting = self.is_waiting = True
        if is_waiting and node.name.count(".") > 1:  # what encloses it must not count as done
            raise WaitsError

    def _subagent(self, run: Any, node: Node, tasks: str) -> None:
        with run.subagent("helper", subagent_id=node.name if node.how["has_id"] else None) as agent:
            if not (node.how["skips"] and agent.is_over):
                self.run(agent, node.inner, tasks)


def live(where: Path, world: World, program: Sequence[Node], fatal: int) -> str:
    life = Life(world, fatal)
    try:
        with SyncClient.open(f"sqlite:///{where}/store.db") as client, client.run("s", agent_id="a") as run:
            life.run(run, program)
    except (EffectUnknownError, WaitsError):
        return "waiting"
    except EffectBlockedError as error:
        return f"blocked: {error}"
    return "waiting" if life.is_waiting else "done"


def in_a_process(work: Callable[..., str], *given: Any) -> str:
    """What the work came to; "killed" if it was killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writing, work(*given).encode()[:4000])
            os._exit(0)
        except BaseException:
            os.write(writing, traceback.format_exc().encode()[-3000:])
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "killed"
    if os.WEXITSTATUS(status):
        raise RuntimeError(f"a life failed:\n{told}")
    return told


def resolve_doubts(where: Path, world: World) -> str:
    with SyncClient.open(f"sqlite:///{where}/store.db") as client:
        doubted = client.effects(in_doubt=True)
        for effect in doubted:
            found = world.find(effect.provider_key)
            outcome, result = ("not_done", None) if found is None else ("done", receipt("act", found["decision"]))
            client.resolve_effect(effect.effect_id, outcome, result=result, by="ann")
    return str(len(doubted))


def run_program(where: Path, seed: int) -> dict[str, Any]:
    """Run one random program until it says that it is done; what it came to."""
    chance, world = random.Random(seed), World(where / "world")
    program = make_program(chance)
    kills = doubts = 0
    came_to = ""
    for _ in range(LIVES):
        came_to = in_a_process(live, where, world, program, chance.randint(1, 25) if kills < KILLS else 0)
        kills += came_to == "killed"
        if came_to == "done" or came_to.startswith("blocked"):
            break
        if came_to == "waiting" or chance.random() < 0.5:  # or the next life meets the doubt
            doubts += int(in_a_process(resolve_doubts, where, world))
    done, all_of_them = world.done("act"), wanted(program)
    return {
        "seed": seed,
        "kills": kills,
        "doubts": doubts,
        "effects": sum(all_of_them.values()),
        "came_to": came_to,
        "twice": sorted((done - all_of_them).elements()),
        "never": sorted((all_of_them - done).elements()),
    }


def main() -> None:
    where, first, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    for seed in range(first, first + count):
        place = where / str(seed)
        place.mkdir()
        print(json.dumps(run_program(place, seed)), flush=True)


if __name__ == "__main__":
    sys.exit(main())
