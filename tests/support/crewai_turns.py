"""Agents and crews for the tests of CrewAI."""

from __future__ import annotations

from typing import Any

from crewai import Agent, Crew, Task
from crewai.flow.flow import Flow, listen, router, start
from crewai_model import FunctionModel  # before CrewAI: no telemetry
from pydantic import BaseModel, SecretStr


def make_agent(model: FunctionModel, *tools: Any, **options: Any) -> Agent:
    return Agent(role="clerk", goal="work", backstory="an office", llm=model, tools=list(tools), **options)


def make_crew(agent: Agent, **options: Any) -> Crew:
    return Crew(agents=[agent], tasks=[Task(description="do {what}", expected_output="work", agent=agent, **options)])


class Interrupted(BaseException):
    """What a kill does, in a test that stays in its process."""


def echo() -> FunctionModel:
    """Return a model that says how many messages of the user it has been sent."""
    return FunctionModel.make(lambda messages: f"{sum(one['role'] == 'user' for one in messages)} heard")


class Count(BaseModel):
    id: str = ""
    numbers: list[int] = []
    secret: SecretStr = SecretStr("a secret of the program")


def make_flow(ran: list[str], *, cut_off_in: str = "") -> Flow[Count]:
    class Counter(Flow[Count]):
        @start()
        def first(self) -> int:
            ran.append("first")
            self.state.numbers.append(len(self.state.numbers))
            return self.state.numbers[-1]

        @router(first)
        async def second(self) -> str:
            ran.append("second")
            if cut_off_in == "second":
                raise Interrupted
            return "even" if self.state.numbers[-1] % 2 == 0 else "odd"

        @listen("even")
        def told_even(self) -> str:
            return f"even: {self.state.numbers}"

        @listen("odd")
        def told_odd(self) -> str:
            return f"odd: {self.state.numbers}"

    return Counter(suppress_flow_events=True)
