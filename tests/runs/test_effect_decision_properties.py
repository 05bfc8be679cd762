"""Effects, as pure functions: which call is the same one, and what a call for a known one leads to."""

from __future__ import annotations

import datetime as dt
import uuid

from hypothesis import given
from hypothesis import strategies as st

from holdfast.codec.codec import Codec
from holdfast.format.rows import ledger
from holdfast.format.state import run_journal
from holdfast.model import effect
from holdfast.model.effect import IN_DOUBT, EffectAction, EffectKind, EffectState, OnRepeat

CODEC = Codec()
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=10,
)
ARGUMENTS = st.dictionaries(st.text(max_size=6), VALUES, max_size=5)
TREES = st.binary(min_size=16, max_size=16)


def reordered(value, draw):
    if isinstance(value, dict):
        return {key: reordered(value[key], draw) for key in draw(st.permutations(list(value)))}
    return [reordered(item, draw) for item in value] if isinstance(value, list) else value


@given(ARGUMENTS, st.data())
def test_the_order_of_keys_makes_no_difference_at_any_depth(arguments, data):
    assert ledger.digest(CODEC, arguments) == ledger.digest(CODEC, reordered(arguments, data.draw))


@given(ARGUMENTS, ARGUMENTS)
def test_other_arguments_have_other_digests(one, other):
    same = CODEC.encode(ledger.canonical(CODEC, one)) == CODEC.encode(ledger.canonical(CODEC, other))
    assert (ledger.digest(CODEC, one) == ledger.digest(CODEC, other)) == same


@given(ARGUMENTS, st.uuids(), st.uuids(), st.datetimes(), st.datetimes())
def test_what_is_new_in_every_call_is_left_out_of_the_loose_digest(arguments, first, second, early, late):
    made = [
        ledger.loose_digest(CODEC, arguments | {"ref": ref, "text": str(ref), "when": when, "iso": when.isoformat()})
        for ref, when in ((first, early), (second, late))
    ]
    assert made[0] == made[1]
    assert ledger.loose_digest(CODEC, {"amount": 500}) != ledger.loose_digest(CODEC, {"amount": 501})
    assert ledger.loose_digest(CODEC, {"day": dt.date(2026, 1, 1)}) == ledger.loose_digest(CODEC, {"day": "2026-01-02"})


@given(TREES, st.text(), st.binary(min_size=32, max_size=32), st.integers(0, 9), st.integers(0, 9))
def test_ids_and_keys_follow_from_tree_tool_identity_ordinal_and_nothing_else(
    tree, tool, identity, ordinal, generation
):
    id_ = effect.effect_id(tree, tool, identity, ordinal)
    assert (len(id_), id_[8:12], uuid.UUID(bytes=id_).hex[12]) == (16, tree[8:12], "8")
    assert id_ == effect.effect_id(tree, tool, identity, ordinal)
    assert id_ != effect.effect_id(tree, tool, identity, ordinal + 1)
    assert id_ != effect.effect_id(tree, tool + "x", identity, ordinal)
    key = effect.provider_key(tree, tool, identity, ordinal, generation)
    assert key.startswith("hf1_")
    assert len(key) <= 64
    assert key != effect.provider_key(tree, tool, identity, ordinal, generation + 1)
    assert key != effect.provider_key(tree, tool, identity, ordinal + 1, generation)


@given(
    st.none() | st.sampled_from(EffectState),
    st.sampled_from([kind for kind in EffectKind if kind is not EffectKind.READ]),
    st.booleans(),
    st.booleans(),
    st.none() | st.sampled_from(OnRepeat),
)
def test_nothing_that_may_have_happened_is_run_again_unless_somebody_decided_so(
    state, kind, recorded, can_probe, on_repeat
):
    action = effect.decide(state, kind, recorded=recorded, can_probe=can_probe, on_repeat=on_repeat)
    if action is EffectAction.RUN and state in effect.HAPPENED:
        assert kind is EffectKind.IDEMPOTENT or (state is EffectState.DONE and on_repeat is OnRepeat.AGAIN)
    if state in IN_DOUBT and kind is not EffectKind.IDEMPOTENT:
        assert action in (EffectAction.UNKNOWN, EffectAction.PROBE)
    if state is EffectState.DONE and kind is EffectKind.IRREVERSIBLE and recorded and on_repeat is None:
        assert action is EffectAction.BLOCK
    if action is EffectAction.PROBE:
        assert can_probe


@given(st.lists(st.text(max_size=6), max_size=3), st.lists(st.text(max_size=6), max_size=3))
def test_places_of_other_names_are_other_places(one, other):
    places = ["/".join(map(run_journal.part, names)) for names in (one, other)]
    assert (places[0] == places[1]) == (one == other or not (any(one) or any(other) or len(one) > 1 or len(other) > 1))
    for name in one:
        assert run_journal.name_of(f"{run_journal.part(name)}#0") == name
