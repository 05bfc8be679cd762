"""Agents of frameworks with `resumable`, beside the framework alone and with its own store: `python -m
benchmarks.frameworks [--turns N] [--only pydantic_ai,autogen] [--results DIR]`.

Runs in an environment that has the frameworks (`make bench-frameworks`); those that are missing are left out. A turn
has three steps: the model calls a tool, the tool answers 3.5 KB, the model answers 1.5 KB. Models and tools are
functions, so all of the CPU is the framework's and ours. CPU is that of the whole process, worker threads included,
over the last turns. The overhead of a step is that of `resumable` over the framework alone, divided by the three
steps of a turn: it has its share of what a turn costs at its beginning and end. Bytes are those of all files after
closing.
"""

import argparse
import asyncio
import gc
import json
import os
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Awaitable, Callable
from importlib import metadata, util
from pathlib import Path
from typing import Any

from benchmarks.tables import table

QUIET = {  # no telemetry while it is measured
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "OTEL_SDK_DISABLED": "true",
}
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))  # models that are functions
PROSE = (ROOT / "docs" / "format.md").read_text("utf-8")
STEPS = 3  # of a turn
LAST = 20  # turns whose CPU is measured
GOAL_MS, GOAL_BYTES = 5.0, 1.5
Take = Callable[[str], Awaitable[Any]]
chance = random.Random(7)


def prose(length: int) -> str:
    start = chance.randrange(len(PROSE) - length)
    return PROSE[start : start + length]


def look(question: str) -> str:
    """Look it up."""
    return prose(3500)


TOOLS = {"look": "read"}


# -- Pydantic AI -----------------------------------------------------------------------------------------------------


def pydantic_agent() -> Any:
    from pydantic_ai import Agent, ModelResponse, RequestUsage
    from pydantic_ai.messages import TextPart, ToolCallPart, UserPromptPart
    from pydantic_ai.models.function import FunctionModel

    def answer(messages: Any, _: Any) -> Any:
        usage = RequestUsage(input_tokens=1, output_tokens=1)
        if isinstance(messages[-1].parts[-1], UserPromptPart):
            call = ToolCallPart("look", {"question": prose(60)}, tool_call_id=f"call-{len(messages)}")
            return ModelResponse([call], usage=usage)
        return ModelResponse([TextPart(prose(1500))], usage=usage)

    return Agent(FunctionModel(answer), name="a", tools=[look])


def pydantic_ai(where: Path | None) -> Take:
    """The conversation as JSON, whole: the store that Pydantic AI has is in memory."""
    agent, history = pydantic_agent(), []

    async def take(prompt: str) -> None:
        result = await agent.run(prompt, message_history=history)
        history[:] = result.all_messages()
        if where is not None:
            (where / "conversation.json").write_bytes(result.all_messages_json())

    return take


def pydantic_ai_ours(client: Any) -> Take:
    from holdfast.pydantic_ai import resumable

    return resumable(pydantic_agent(), session_id="s", store=client, tools=TOOLS).run


# -- OpenAI Agents SDK -----------------------------------------------------------------------------------------------


def openai_agent() -> Any:
    from agents import Agent, Model, function_tool
    from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call

    class Talker(Model):
        def _script(self, given: Any) -> Any:
            if isinstance(given, str) or given[-1].get("role") == "user":
                output = function_call("look", {"question": prose(60)}, call_id=f"call-{len(given)}")
            else:
                output = assistant_message(prose(1500))
            return ScriptedModel([ModelStep(output=[output])])

        async def get_response(self, system_instructions: Any, input: Any, *rest: Any, **options: Any) -> Any:  # noqa: A002  # the SDK's name
            return await self._script(input).get_response(system_instructions, input, *rest, **options)

        def stream_response(self, system_instructions: Any, input: Any, *rest: Any, **options: Any) -> Any:  # noqa: A002
            return self._script(input).stream_response(system_instructions, input, *rest, **options)

    return Agent("a", model=Talker(), tools=[function_tool(look)])


def openai_agents(where: Path | None) -> Take:
    """`SQLiteSession`."""
    from agents import Runner, SQLiteSession

    agent = openai_agent()
    session = SQLiteSession("s", ":memory:" if where is None else where / "session.db")
    return lambda prompt: Runner.run(agent, prompt, session=session)


def openai_agents_ours(client: Any) -> Take:
    from holdfast.openai_agents import resumable

    return resumable(openai_agent(), session_id="s", store=client, tools=TOOLS).run


# -- AutoGen ---------------------------------------------------------------------------------------------------------


def autogen_agent() -> Any:
    from autogen_agentchat.agents import AssistantAgent
    from autogen_core import FunctionCall
    from autogen_core.models import FunctionExecutionResultMessage
    from autogen_model import FunctionModel

    def answer(messages: Any) -> Any:
        if isinstance(messages[-1], FunctionExecutionResultMessage):
            return prose(1500)
        return [FunctionCall(id=f"call-{len(messages)}", name="look", arguments=json.dumps({"question": prose(60)}))]

    return AssistantAgent("a", FunctionModel(answer), tools=[look], max_tool_iterations=2)


def autogen(where: Path | None) -> Take:
    """`save_state` to a file, after each turn."""
    agent = autogen_agent()

    async def take(prompt: str) -> None:
        await agent.run(task=prompt)
        if where is not None:
            (where / "state.json").write_text(json.dumps(await agent.save_state()))

    return take


def autogen_ours(client: Any) -> Take:
    from holdfast.autogen import resumable

    team = resumable(autogen_agent(), session_id="s", store=client, tools=TOOLS)
    return lambda prompt: team.run(task=prompt)


# -- Google ADK ------------------------------------------------------------------------------------------------------


def adk_agent() -> Any:
    from google.adk.agents import LlmAgent
    from google.adk.models.base_llm import BaseLlm
    from google.adk.models.llm_response import LlmResponse
    from google.genai import types

    class Talker(BaseLlm):
        async def generate_content_async(self, llm_request: Any, stream: bool = False) -> Any:
            last = llm_request.contents[-1].parts[-1]
            if last.function_response is None:
                id_ = f"call-{len(llm_request.contents)}"
                call = types.FunctionCall(id=id_, name="look", args={"question": prose(60)})
                part = types.Part(function_call=call)
            else:
                part = types.Part(text=prose(1500))
            yield LlmResponse(content=types.Content(role="model", parts=[part]))

    return LlmAgent(name="a", model=Talker(model="fake"), tools=[look])


def google_adk(where: Path | None) -> Take:
    """`InMemorySessionService`: its store in files needs SQLAlchemy."""
    from google.adk.runners import Runner
    from google.adk.sessions import InMemorySessionService
    from google.genai import types

    service = InMemorySessionService()
    runner = Runner(app_name="a", agent=adk_agent(), session_service=service)

    async def take(prompt: str) -> None:
        if await service.get_session(app_name="a", user_id="u", session_id="s") is None:
            await service.create_session(app_name="a", user_id="u", session_id="s")
        message = types.Content(role="user", parts=[types.Part(text=prompt)])
        async for _ in runner.run_async(user_id="u", session_id="s", new_message=message):
            pass

    return take


def google_adk_ours(client: Any) -> Take:
    from holdfast.google_adk import resumable

    agent = resumable(adk_agent(), session_id="s", store=client, tools=TOOLS)

    async def take(prompt: str) -> None:
        async for _ in agent.run_async(user_id="u", new_message=prompt):
            pass

    return take


# -- Microsoft agent-framework -----------------------------------------------------------------------------------------


def microsoft_agent(**options: Any) -> Any:
    from agent_framework import Agent, tool
    from agent_framework_model import FunctionClient, call, results_since_user

    def answer(messages: Any) -> Any:
        if results_since_user(messages):
            return prose(1500)
        return [call("look", f"call-{len(messages)}", question=prose(60))]

    return Agent(FunctionClient(answer), name="a", tools=[tool(look)], **options)


def agent_framework(where: Path | None) -> Take:
    """`FileHistoryProvider`."""
    from agent_framework import FileHistoryProvider

    agent = microsoft_agent(**({} if where is None else {"context_providers": [FileHistoryProvider(where)]}))
    session = agent.create_session()
    return lambda prompt: agent.run(prompt, session=session)


def agent_framework_ours(client: Any) -> Take:
    from holdfast.agent_framework import resumable

    return resumable(microsoft_agent(), session_id="s", store=client, tools=TOOLS).run


# -- CrewAI ------------------------------------------------------------------------------------------------------------


def crewai_agent() -> Any:
    from crewai import Agent
    from crewai.tools import tool
    from crewai_model import FunctionModel

    def answer(messages: Any) -> Any:
        if messages[-1]["role"] == "tool":
            return prose(1500)
        call = {"name": "look", "arguments": json.dumps({"question": prose(60)})}
        return [{"id": f"call-{len(messages)}", "type": "function", "function": call}]

    return Agent(
        role="a", goal="look", backstory="looks", llm=FunctionModel.make(answer), tools=[tool(look)], verbose=False
    )


def crewai(where: Path | None) -> Take:
    """Nothing: agents of CrewAI have no store. The program keeps the conversation."""
    agent, said = crewai_agent(), []

    async def take(prompt: str) -> None:
        said.append({"role": "user", "content": prompt})
        output = await agent.kickoff_async(said)
        said.extend(output.messages[1 + len(said) :])

    return take


def crewai_ours(client: Any) -> Take:
    from holdfast.crewai import resumable

    return resumable(crewai_agent(), session_id="s", store=client, tools=TOOLS).kickoff_async


# By the name of the adapter: the distribution, the framework alone and with its own store, and ours.
FRAMEWORKS: dict[str, tuple[str, Callable[[Path | None], Take], Callable[[Any], Take]]] = {
    "agent_framework": ("agent-framework-core", agent_framework, agent_framework_ours),
    "autogen": ("autogen-agentchat", autogen, autogen_ours),
    "crewai": ("crewai", crewai, crewai_ours),
    "google_adk": ("google-adk", google_adk, google_adk_ours),
    "openai_agents": ("openai-agents", openai_agents, openai_agents_ours),
    "pydantic_ai": ("pydantic-ai-slim", pydantic_ai, pydantic_ai_ours),
}
BLOCKING = ("crewai",)


# -- measuring ---------------------------------------------------------------------------------------------------------


async def talk(take: Take, turns: int) -> float:
    """Take all turns; return the CPU milliseconds of one turn at the end."""
    chance.seed(7)
    for number in range(turns):
        if number == turns - LAST:
            gc.collect()
            started = time.process_time()
        await take(f"{number} {prose(200)}")
    return 1000 * (time.process_time() - started) / LAST


def size_of(where: Path) -> int:
    return sum(one.stat().st_size for one in where.rglob("*") if one.is_file())


def measure(name: str, turns: int, where: Path) -> dict[str, Any]:
    from holdfast import Client, SyncClient

    distribution, theirs, ours = FRAMEWORKS[name]
    own, store = where / "own", where / "store"
    own.mkdir()
    store.mkdir()
    alone = asyncio.run(talk(theirs(None), turns))
    with_own = asyncio.run(talk(theirs(own), turns))

    async def awaited() -> tuple[float, int]:
        async with Client.sqlite(store / "store.db") as client:
            spent = await talk(ours(client), turns)
            return spent, transcript_of(await client.latest("s"))

    def blocking() -> tuple[float, int]:
        with SyncClient.sqlite(store / "store.db") as client:
            spent = asyncio.run(talk(ours(client), turns))
            return spent, transcript_of(client.latest("s"))

    with_ours, transcript = blocking() if name in BLOCKING else asyncio.run(awaited())
    return {
        "framework": name,
        "version": metadata.version(distribution),
        "turns": turns,
        "cpu_ms_of_turn": {"alone": alone, "own store": with_own, "resumable": with_ours},
        "overhead_ms_of_step": (with_ours - alone) / STEPS,
        "transcript_bytes": transcript,
        "bytes": {"own store": size_of(own), "resumable": size_of(store)},
        "own_store": (theirs.__doc__ or "").strip(),
    }


def transcript_of(checkpoint: Any) -> int:
    state = {key: value for key, value in checkpoint.execution_state.items() if key != "turn"}
    return len(json.dumps(state, default=str, ensure_ascii=False).encode())


def describe(results: list[dict[str, Any]]) -> str:
    rows = []
    for one in results:
        cpu, size, whole = one["cpu_ms_of_turn"], one["bytes"], one["transcript_bytes"]
        rows.append(
            [
                f"{one['framework']} {one['version']}",
                f"{cpu['alone']:.1f}",
                f"{cpu['own store']:.1f}",
                f"{cpu['resumable']:.1f}",
                f"{one['overhead_ms_of_step']:.1f}",
                f"{whole / 1000:,.0f}",
                f"{size['own store'] / 1000:,.0f}" if size["own store"] else "none",
                f"{size['resumable'] / 1000:,.0f} ({size['resumable'] / whole:.2f})",
            ]
        )
    head = ["CPU ms of a turn:", "alone", "own store", "resumable", "overhead of a step", "KB: transcript", "own store"]
    return "\n".join(table([*head, "resumable"], rows))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.frameworks")
    parser.add_argument("--turns", type=int, default=300)
    parser.add_argument(
        "--only", metavar="A,B,…", default=",".join(FRAMEWORKS), help=f"some of {', '.join(FRAMEWORKS)}"
    )
    parser.add_argument("--results", type=Path, help="directory for frameworks.json")
    given = parser.parse_args()
    if given.turns <= LAST:
        parser.error(f"--turns must be more than {LAST}, over which CPU is measured")
    os.environ.update(QUIET)
    warnings.simplefilter("ignore")  # of the frameworks, about themselves
    results = []
    for name in given.only.split(","):
        if name not in FRAMEWORKS:
            parser.error(f"{name!r} is none of {', '.join(FRAMEWORKS)}")
        if not _is_here(name):
            print(f"{name}: not installed here, left out", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory(prefix="holdfast-frameworks-") as where:
            results.append(measure(name, given.turns, Path(where)))
        print(f"{name}: measured", file=sys.stderr, flush=True)
    print(describe(results))
    print(f"goals: overhead of a step at most {GOAL_MS} ms, bytes at most {GOAL_BYTES} times the transcript")
    if given.results is not None:
        given.results.mkdir(parents=True, exist_ok=True)
        (given.results / "frameworks.json").write_text(json.dumps(results, indent=1))


def _is_here(name: str) -> bool:
    try:
        metadata.version(FRAMEWORKS[name][0])
    except metadata.PackageNotFoundError:
        return False
    return util.find_spec(f"holdfast.{name}") is not None


if __name__ == "__main__":
    main()
