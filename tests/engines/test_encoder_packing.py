"""Texts side by side without padding."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_cluster.engines.encoder.packing import Encoded, pack, packs, slices

lengths = st.lists(st.integers(1, 40), min_size=1, max_size=60)


def encoded(sizes: list[int]) -> list[Encoded]:
    """Text i is i, i, i, ..."""
    return [Encoded(row, np.full(size, row, dtype=np.int32)) for row, size in enumerate(sizes)]


@given(lengths, st.integers(1, 64), st.integers(1, 7))
@settings(max_examples=60, deadline=None)
def test_every_text_is_in_exactly_one_pack_whole_and_within_the_budget(
    sizes: list[int], budget: int, size: int
) -> None:
    texts = encoded(sizes)
    rows = []
    for one in packs([[texts[row] for row in part] for part in slices(sizes, size, 2 * size)], budget):
        assert one.tokens <= budget or len(one.rows) == 1
        assert one.longest == max(sizes[row] for row in one.rows)
        for at, row in enumerate(one.rows):
            start, end = one.bounds[at : at + 2]
            assert one.ids[start:end].tolist() == [row] * sizes[row]
            assert one.positions[start:end].tolist() == list(range(sizes[row]))
        rows.extend(one.rows.tolist())
    assert sorted(rows) == list(range(len(sizes)))


@given(lengths)
@settings(max_examples=30, deadline=None)
def test_groups_are_runs_of_equal_length_that_cover_a_pack(sizes: list[int]) -> None:
    one = pack(encoded(sizes))
    places, bounds = [], one.bounds.tolist()
    for start, count, length in one.groups():
        places.extend(start + at * length for at in range(count))
    assert places == bounds[:-1]


def test_only_the_last_pack_is_small() -> None:
    texts = encoded([10] * 100)
    sizes = [one.tokens for one in packs([texts[:33], texts[33:66], texts[66:]], 128)]
    assert sizes == [120] * 8 + [40]


def test_little_is_tokenised_before_the_first_pack_and_much_at_a_time_later() -> None:
    sizes = list(range(500))
    parts = list(slices(sizes, 16, 100))
    assert [len(part) for part in parts] == [16, 32, 64, 100, 100, 100, 88]
    assert [row for part in parts for row in part] == sizes[::-1]


def test_packs_are_made_as_they_are_asked_for() -> None:
    taken = []

    def parts():
        for at in range(5):
            taken.append(at)
            yield encoded([10] * 10)

    stream = packs(parts(), 50)
    next(stream)
    assert taken == [0]


def test_token_types_travel_with_their_text() -> None:
    texts = [Encoded(0, np.array([5, 6], np.int32), np.array([0, 1], np.int32)), *encoded([1, 3])[1:]]
    texts[1] = Encoded(1, texts[1].ids, np.array([0, 0, 1], np.int32))
    (one,) = packs([texts], 50)
    assert one.types is not None
    assert one.types.tolist() == [0, 0, 1, 0, 1]


def test_preparing_runs_ahead_and_its_errors_arrive_where_they_are_waited_for() -> None:
    pytest.importorskip("torch", reason="needs the extra [models]")
    from rag_cluster.engines.encoder.runtime import ahead

    def items():
        yield 1
        yield 2
        raise ValueError("bad text")

    stream = ahead(items(), 2)
    assert [next(stream), next(stream)] == [1, 2]
    with pytest.raises(ValueError, match="bad text"):
        next(stream)


def test_a_consumer_that_stops_early_leaves_no_thread() -> None:
    pytest.importorskip("torch", reason="needs the extra [models]")
    from rag_cluster.engines.encoder.runtime import ahead

    stream = ahead(iter(range(1000)), 2)
    next(stream)
    stream.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "packing"]
