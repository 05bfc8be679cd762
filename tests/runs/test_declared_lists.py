"""Lists of a run's state that adapters declare unchanged: saves keep them without encoding them again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast import SyncClient
from holdfast.codec.codec import Codec

MESSAGES = [{"n": number, "text": "x" * 200} for number in range(60)]


def test_the_same_list_is_kept_and_a_new_one_is_saved(tmp_path: Path, monkeypatch):
    encoded: list[int] = []
    joined = Codec.encode_joined

    def noted(self: Any, value: Any, *args: Any, **kwargs: Any) -> bytes:
        encoded.append(len(value))
        return joined(self, value, *args, **kwargs)

    with SyncClient.sqlite(tmp_path / "store.db") as client:
        with client.run("s") as run:
            run._core.declare_lists()
            run.state = {"turn": 1, "messages": list(MESSAGES)}
            run.save("begun")
            monkeypatch.setattr(Codec, "encode_joined", noted)
            run.step("one", lambda: 1)
            run.state = {**run.state, "turn": 2}
            run.save("two")
            assert sum(encoded) < len(MESSAGES)  # the list was not encoded again
            assert client.latest("s").execution_state == {"turn": 2, "messages": MESSAGES}
            run.state = {"turn": 3, "messages": [*MESSAGES, {"n": 60}]}
            run.save("three")
        found = client.latest("s")
        assert found.execution_state == {"turn": 3, "messages": [*MESSAGES, {"n": 60}]}
        assert list(found.execution_state) == ["turn", "messages"]
        with client.run("s") as run:  # another life goes on with the stored list
            run._core.declare_lists()
            assert run.step("one", lambda: 2) == 1
            run.step("four", lambda: 4)
        assert client.latest("s").execution_state == found.execution_state
        assert client.verify().ok


def test_a_list_that_has_the_same_elements_and_further_ones_is_appended_to(tmp_path: Path, monkeypatch):
    encoded: list[int] = []
    joined = Codec.encode_joined

    def noted(self: Any, value: Any, *args: Any, **kwargs: Any) -> bytes:
        encoded.append(len(value))
        return joined(self, value, *args, **kwargs)

    with SyncClient.sqlite(tmp_path / "store.db") as client:
        with client.run("s") as run:
            run._core.declare_lists()
            run.state = {"turn": 1, "messages": list(MESSAGES)}
            run.save("begun")
            monkeypatch.setattr(Codec, "encode_joined", noted)
            run.state = {"turn": 2, "messages": [*run.state["messages"], {"n": 60}]}
            run.save("appended")
            assert sum(encoded) < len(MESSAGES)  # only the new element was encoded
            assert client.latest("s").execution_state == {"turn": 2, "messages": [*MESSAGES, {"n": 60}]}
            changed = [{"n": True, "text": "x" * 200}, *run.state["messages"][1:], {"n": 61}]
            run.state = {"turn": 3, "messages": changed}
            run.save("changed")
            assert client.latest("s").execution_state["messages"] == changed
            run.state = {"turn": 4, "messages": changed[:30]}
            run.save("cut")
        assert client.latest("s").execution_state == {"turn": 4, "messages": changed[:30]}
        assert client.verify().ok
