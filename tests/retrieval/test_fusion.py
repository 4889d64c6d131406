"""Reciprocal rank fusion."""

import pytest

from rag_cluster.retrieval.fusion import reciprocal_rank_fusion


def test_what_both_channels_find_beats_what_one_finds_first() -> None:
    fused = reciprocal_rank_fusion([["a", "b", "c"], ["b", "d"]])
    assert max(fused, key=fused.__getitem__) == "b"


def test_only_ranks_count() -> None:
    assert reciprocal_rank_fusion([["a"], ["a"]]) == {"a": pytest.approx(2 / 61)}
