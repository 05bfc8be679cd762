"""Redaction rules: what they meet is in no encoding, what they don't meet comes back equal, and nothing of the
caller's is changed."""

from __future__ import annotations

import contextlib
import copy
import re
from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import ormsgpack
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.codec.codec import Codec
from holdfast.codec.redact import Redactor, RuleMatch
from holdfast.codec.redaction_rules import parse_pattern
from holdfast.codec.registry import TypeRegistry
from holdfast.codec.secret_types import Redaction, SecretTypes, redaction_of
from holdfast.errors import CorruptError, SecretUnavailableError, UnsupportedValueError, UsageError
from holdfast.redaction import RedactedValue, by_callable, by_path, by_pattern, by_type, is_redacted, known_tokens

SECRET = "hush-4f1c"
KEYS = ("api_key", "user", "a", "token", "messages")


def ruled(*rules: Any, types: TypeRegistry | None = None) -> Codec:
    return Codec(types or TypeRegistry(), redaction=redaction_of(rules))


def through(codec: Codec, value: Any, path: str = "execution_state") -> Any:
    data = codec.encode(value, path)
    assert SECRET.encode() not in data
    return codec.decode(data)


# -- properties --------------------------------------------------------------------------------------------------------

ATOMS = st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab", max_size=3) | st.binary(max_size=3)
VALUES = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
        | st.tuples(inner, inner)
        | st.lists(inner, max_size=3).map(deque)
        | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3).map(OrderedDict)
    ),
    max_leaves=25,
)
STEPS = st.sampled_from([*KEYS, "*", "**", "a*"])
PATHS = st.lists(STEPS, min_size=1, max_size=4).filter(lambda steps: set(steps) - {"*", "**"}).map(".".join)


def is_met(pattern: tuple[str, ...], steps: tuple[str, ...]) -> bool:
    """What a path means, written down without states: the whole path, or the path of something around it."""
    text = "/".join(steps) + "/"
    parts = {"**": "(?:[^/]+/)*", "*": "[^/]+/", "a*": "a[^/]*/"}
    whole = "".join(parts.get(step, re.escape(step) + "/") for step in pattern)
    return re.match(whole, text) is not None


def leaves(value: Any, steps: tuple[str, ...] = ("execution_state",)) -> Any:
    yield steps, value
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*steps, key))
    elif isinstance(value, list | tuple | deque):
        for item in value:
            yield from leaves(item, (*steps, "0"))  # an index is met by wildcards only, and no key is a number here


@given(VALUES, st.lists(PATHS, min_size=1, max_size=3))
def test_paths_meet_what_their_meaning_says(value: Any, paths: list[str]):
    patterns = [parse_pattern(path) for path in paths]
    before = copy.deepcopy(value)
    done = ruled(by_path(*paths)).redact(value, "execution_state")
    assert value == before
    for steps, item in leaves(done):
        assert (
            is_redacted(item)
            or item is None
            or isinstance(item, dict | list)
            or not any(is_met(pattern, steps) for pattern in patterns)
        )
    expected_any = any(
        item is not None and len(steps) > 1 and any(is_met(pattern, steps) for pattern in patterns)
        for steps, item in leaves(value)
    )
    assert any(is_redacted(item) for _, item in leaves(done)) == expected_any
    assert (done is value) == (not expected_any)


@given(VALUES, st.lists(PATHS, min_size=1, max_size=3))
def test_a_second_time_changes_nothing(value: Any, paths: list[str]):
    codec = ruled(by_path(*paths))
    once = codec.encode(value, "execution_state")
    again = codec.decode(once)
    assert codec.encode(again, "execution_state") == once
    assert codec.internal.encode(again, "execution_state") == once
    assert Codec().encode(again) == once


@given(VALUES)
def test_rules_that_meet_nothing_change_no_byte(value: Any):
    rules = by_path("**.nowhere"), known_tokens(), by_callable(lambda _value, _path: False, label="none")
    assert ruled(*rules).encode(value, "execution_state") == Codec().encode(value, "execution_state")


@given(st.lists(VALUES, min_size=1, max_size=12), PATHS, st.integers(0, 3))
def test_elements_are_redacted_as_in_their_list(items: list[Any], path: str, first: int):
    codec = ruled(by_path(path))
    whole = codec.redact({"messages": [*[None] * first, *items]}, "execution_state")["messages"]
    encoded = codec.encode_each(items, "execution_state.messages", first)
    if is_redacted(whole):  # the list itself is met: so is each element
        assert all(
            is_redacted(codec.decode(one)) == (item is not None) for one, item in zip(encoded, items, strict=True)
        )
    else:
        assert encoded == codec.internal.encode_each(whole[first:], "execution_state.messages", first)


@given(VALUES)
def test_a_scan_finds_what_a_save_leaves_out(value: Any):
    redaction = Redaction(by_path("**.api_key", "execution_state.user"))
    found: list[RuleMatch] = []
    Redactor(Codec(), redaction, "execution_state", found.append).apply(value)
    done = Codec(redaction=redaction).redact(value, "execution_state")
    assert len(found) == sum(is_redacted(item) for _, item in leaves(done))


# -- by type -----------------------------------------------------------------------------------------------------------


class Token(pydantic.SecretStr):
    pass


@dataclass
class Login:
    user: str
    api_key: str
    password: pydantic.SecretStr


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    token: pydantic.SecretStr
    name: str = "x"


def types() -> TypeRegistry:
    made = TypeRegistry()
    made.register(Login)
    made.register(Model)
    return made


@pytest.mark.parametrize("kind", [pydantic.SecretStr, Token], ids=lambda kind: kind.__name__)
def test_a_secret_is_left_out_by_itself(kind: type[Any]):
    given = {"key": kind(SECRET), "deep": [({"x": kind(SECRET)},)]}
    back = through(ruled(), given)
    assert given["key"].get_secret_value() == SECRET
    for one in (back["key"], back["deep"][0][0]["x"]):
        assert isinstance(one, pydantic.SecretStr)
        assert repr(one) == str(one) == f"<redacted {kind.__name__}>"
        with pytest.raises(SecretUnavailableError, match="Set it again"):
            one.get_secret_value()
    assert back["key"] == back["deep"][0][0]["x"]
    assert through(ruled(), back) == back


def test_secret_bytes_and_secrets_of_other_kinds():
    back = through(ruled(), [pydantic.SecretBytes(SECRET.encode()), pydantic.Secret[dict[str, str]]({"x": SECRET})])
    assert isinstance(back[0], pydantic.SecretBytes)
    assert back[1] == RedactedValue("pydantic.types.Secret", "type pydantic.types.Secret") or is_redacted(back[1])


def test_fields_of_models_and_dataclasses_stay_secrets():
    given = {"login": Login("ann", "k", pydantic.SecretStr(SECRET)), "model": Model(token=SECRET)}
    codec = ruled(types=types())
    back = through(codec, given)
    assert (back["login"].user, back["model"].name) == ("ann", "x")
    assert is_redacted(back["login"].password)
    assert isinstance(back["model"].token, pydantic.SecretStr)
    assert back["model"].model_dump()["token"] == back["model"].token
    assert Model.model_validate({"token": back["model"].token}).token == back["model"].token


def test_without_rules_a_secret_is_refused():
    with pytest.raises(UnsupportedValueError, match="never stored in clear"):
        Codec(redaction=redaction_of(False)).encode({"key": pydantic.SecretStr(SECRET)})


def test_a_registered_class_is_stored_as_registered_unless_a_rule_names_it():
    registry = TypeRegistry()
    registry.register(
        pydantic.SecretStr, encode=lambda secret: f"sealed {len(secret)}", decode=lambda _: pydantic.SecretStr("back")
    )
    assert through(ruled(types=registry), pydantic.SecretStr(SECRET)).get_secret_value() == "back"
    assert is_redacted(through(ruled(by_type(pydantic.SecretStr), types=registry), pydantic.SecretStr(SECRET)))


def test_classes_of_the_users_own_with_their_subclasses():
    class Credential:
        value = SECRET

    class Special(Credential):
        pass

    for rule in (by_type(Credential), by_type(f"{__name__}.{Credential.__qualname__}")):
        back = through(ruled(rule), [Special(), (Credential(),)])
        assert (back[0].short_type, back[1][0].short_type) == ("Special", "Credential")
    whole = through(ruled(by_type(Login), types=types()), {"login": Login("ann", SECRET, pydantic.SecretStr(SECRET))})
    assert whole["login"].short_type == "Login"


def test_classes_that_are_gone_are_not_held_for_good():
    secrets = SecretTypes(redaction_of(by_type(pydantic.SecretBytes)))
    for number in range(5000):
        assert secrets[type(f"Made{number}", (), {})] is None
    assert len(secrets) <= 4096
    assert secrets[pydantic.SecretBytes] is not None


@pytest.mark.parametrize("given", [{pydantic.SecretStr(SECRET)}, {pydantic.SecretStr(SECRET): 1}], ids=["set", "key"])
def test_a_secret_is_no_key_and_no_member(given: Any):
    with pytest.raises(UnsupportedValueError, match="neither a key nor a") as refused:
        ruled().encode(given, "state")
    assert SECRET not in str(refused.value)


# -- by path, pattern and function -------------------------------------------------------------------------------------


def test_paths_lead_through_objects_and_every_kind_of_container():
    model = Model(token="x", api_key=SECRET)
    given = {
        "login": Login("ann", SECRET, pydantic.SecretStr("x")),
        "model": model,
        "ordered": OrderedDict(api_key=SECRET),
        "default": defaultdict(list, api_key=[SECRET]),
        "queue": deque([{"api_key": SECRET}]),
        "pair": ({"api_key": SECRET},),
        3: {"api_key": {"all": [SECRET]}},
    }
    back = through(ruled(by_path("**.api_key"), types=types()), given)
    assert is_redacted(back["login"].api_key)
    assert back["login"].user == "ann"
    assert is_redacted(back["model"].api_key)
    assert (type(back["ordered"]), type(back["default"])) == (OrderedDict, defaultdict)
    assert is_redacted(back[3]["api_key"])
    assert (model.api_key, given["login"].api_key) == (SECRET, SECRET)


def test_none_is_no_secret_and_a_name_comes_back():
    back = through(ruled(by_path("**.api_key", name="env:KEY")), {"a": {"api_key": None}, "b": {"api_key": SECRET}})
    assert back["a"] == {"api_key": None}
    assert (back["b"]["api_key"].name, back["b"]["api_key"].type) == ("env:KEY", "str")
    with pytest.raises(SecretUnavailableError, match="env:KEY"):
        back["b"]["api_key"].get_secret_value()


@pytest.mark.parametrize(
    "token",
    [
        "sk-ant-api03-abcdefghijklmnopqrstuvwx",
        "sk-proj-abcdefghijklmnopqrstuvwx",
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "github_pat_11AAAAAAA0abcdefghijklmnop",
        "glpat-abcdefghijklmnopqrst",
        "AIzaSyA-abcdefghijklmnopqrstuvwxyz012345",
        "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH",
        "xoxb-123456789012-abcdef",
        "sk_live_abcdefghijklmnopqrstuvwx",
        "-----BEGIN RSA PRIVATE KEY-----",
    ],
)
def test_known_tokens_in_texts_bytes_and_paths(token: str):
    codec = ruled(known_tokens())
    for value in (f"my key is {token}, thanks", token.encode(), bytearray(token.encode()), PurePosixPath(token)):
        data = codec.encode({"text": value, "rest": "stays"})
        assert token.encode() not in data
        assert codec.decode(data)["rest"] == "stays"
    assert "risk-free disk-drive task-list" in through(codec, ["risk-free disk-drive task-list"])


def test_a_function_sees_values_with_their_paths():
    seen: list[tuple[Any, str]] = []

    def is_secret(value: Any, path: str) -> bool:
        seen.append((value, path))
        return value == SECRET

    assert is_redacted(through(ruled(by_callable(is_secret, label="mine")), {"a": [1, SECRET]})["a"][1])
    assert (SECRET, "execution_state.a[1]") in seen
    assert (1, "execution_state.a[0]") in seen


def test_a_function_that_fails_stores_nothing_and_tells_nothing():
    def fails(value: Any, _path: str) -> bool:
        raise ValueError(value)

    with pytest.raises(UnsupportedValueError, match="raised ValueError") as refused:
        ruled(by_callable(fails, label="mine")).encode([SECRET], "state")
    assert SECRET not in str(refused.value)
    assert refused.value.__cause__ is None


@pytest.mark.parametrize(
    "rule",
    [
        by_type(pydantic.SecretStr, action="refuse"),
        by_path("**.key", action="refuse"),
        by_callable(lambda value, _path: isinstance(value, pydantic.SecretStr), label="mine", action="refuse"),
    ],
    ids=["type", "path", "function"],
)
def test_a_rule_may_refuse(rule: Any):
    with pytest.raises(UnsupportedValueError, match=r"state\.deep\[0\]\.key: the redaction rule") as refused:
        ruled(rule).encode({"deep": [{"key": pydantic.SecretStr(SECRET)}]}, "state")
    assert SECRET not in str(refused.value)


def test_a_key_that_is_a_secret_is_refused_and_never_shown():
    with pytest.raises(UnsupportedValueError, match="neither a key nor a member") as refused:
        ruled(by_pattern(SECRET, label="mine")).encode({"a": {SECRET: 1}}, "state")
    assert SECRET not in str(refused.value)
    found: list[RuleMatch] = []
    Redactor(Codec(), Redaction([by_pattern(SECRET, label="mine")]), "state", found.append).apply({SECRET: [SECRET]})
    assert len(found) == 2
    assert SECRET not in str(found)


def test_a_path_that_names_a_whole_part_keeps_its_form():
    codec = ruled(by_path("arguments", "exception"))
    assert {name: is_redacted(one) for name, one in through(codec, {"a": SECRET, "b": 1}, "arguments").items()} == {
        "a": True,
        "b": True,
    }
    assert codec.redact_text(SECRET, "exception") == "<redacted str>"
    assert codec.redact_text("shown", "result") == "shown"


def test_a_cycle_is_refused_as_ever():
    cycle: list[Any] = [SECRET]
    cycle.append(cycle)
    with pytest.raises(UnsupportedValueError, match="contains itself"):
        ruled(by_path("**.api_key")).encode(cycle, "state")


# -- references --------------------------------------------------------------------------------------------------------


def test_a_dict_that_looks_like_a_reference_stays_a_dict():
    for value in ({"$type": "redacted", "value": "<redacted str>"}, [1, "drop", "rule", None, "str"]):
        assert through(ruled(known_tokens()), value) == value


@given(st.binary(max_size=40) | st.lists(ATOMS, max_size=6).map(ormsgpack.packb))
def test_damaged_references_are_damage(payload: bytes):
    data = ormsgpack.packb(ormsgpack.Ext(19, payload))
    with contextlib.suppress(CorruptError):
        assert is_redacted(Codec().decode(data))


@pytest.mark.parametrize(
    "wrong",
    [
        by_type,
        lambda: by_type(str),
        lambda: by_type(object),
        lambda: by_type(3),
        by_path,
        lambda: by_path("**"),
        lambda: by_path("a..[b"),
        lambda: by_path(""),
        lambda: by_path("a", action="mask"),
        lambda: by_pattern("(", label="x"),
        lambda: by_pattern("x", label=""),
        lambda: by_callable(3, label="x"),
        lambda: redaction_of("**.api_key"),
        lambda: redaction_of([3]),
        lambda: redaction_of(True),
    ],
)
def test_rules_that_mean_nothing_are_refused(wrong: Any):
    with pytest.raises(UsageError):
        wrong()
