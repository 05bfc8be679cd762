"""Addresses of objects: equal where two sequences hold the very same objects, in the same order, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from operator import is_
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.objects import addresses as module
from holdfast.objects.addresses import addresses, addresses_in

OBJECTS: list[Any] = [0, False, 0.0, -0.0, "", b"", (), None, [], [], {}, {}, object(), 10**30, 10**30 + 0, "a" * 99]
sequences = st.lists(st.sampled_from(range(len(OBJECTS))), max_size=6)


@pytest.fixture(params=["read", "asked"], autouse=True)
def both_ways(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        if request.param == "asked":
            patched.setattr(module, "_ARE_SIDE_BY_SIDE", False)
        else:
            assert module._ARE_SIDE_BY_SIDE, "this interpreter keeps tuples in another way: it is slow, and not wrong"
        yield


@given(sequences, sequences)
def test_they_are_equal_where_the_objects_are_the_same(first: list[int], second: list[int]) -> None:
    one, other = [OBJECTS[number] for number in first], [OBJECTS[number] for number in second]
    same = len(one) == len(other) and all(map(is_, one, other))
    assert (addresses(one) == addresses(other)) == same
    assert addresses(iter(one)) == addresses(one)
    assert addresses_in(one) == addresses(one)


def test_both_ways_give_the_same() -> None:
    assert addresses(OBJECTS) == module._asked(tuple(OBJECTS))
