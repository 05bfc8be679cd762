"""Credentials of AutoGen's components are not stored with the state of a team."""

from __future__ import annotations

import asyncio

from framework_environments import require
from stored_secrets import assert_secret_is_not_stored
from survives import survives

require("autogen")

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_model import FunctionModel
from pydantic import BaseModel

from holdfast.autogen import resumable

KEYS = ("sk-of-a-component-0123456789", "sk-env-0123456789")


class Config(BaseModel):
    api_key: str
    headers: dict[str, str]


class KeyedModel(FunctionModel):
    """A model whose component has its key, as those of the extensions do."""

    component_type = "model"
    component_config_schema = Config
    component_provider_override = "tests.KeyedModel"

    def _to_config(self) -> Config:
        return Config(api_key=KEYS[0], headers={"Authorization": KEYS[0]})


def make_team() -> RoundRobinGroupChat:
    agents = [AssistantAgent(name, KeyedModel(lambda _: "said")) for name in ("a", "b")]
    return RoundRobinGroupChat(agents, termination_condition=MaxMessageTermination(3))


def test_control_autogen_writes_the_key_into_the_config_of_a_team():
    assert KEYS[0] in make_team().dump_component().model_dump_json()


@survives("keys in the config of a component", "are never stored")
def test_credentials_of_components_are_not_stored(tmp_path, monkeypatch):
    async def main() -> None:
        for number in range(2):
            result = await resumable(make_team(), session_id="s", store=store).run(task="hello", turn=str(number))
            assert len(result.messages) == 3

    monkeypatch.setenv("OPENAI_API_KEY", KEYS[1])
    store = f"sqlite:///{tmp_path}/store.db"
    asyncio.run(main())
    for key in KEYS:
        assert_secret_is_not_stored(store, key, tmp_path)
