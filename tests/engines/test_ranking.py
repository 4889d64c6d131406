"""When one computation of a model may stand for another."""

from __future__ import annotations

import numpy as np

from rag_cluster.engines.ranking import PASSAGES, QUESTIONS, compare_rankings


def test_there_are_64_different_texts_half_of_them_chinese() -> None:
    texts = {*QUESTIONS, *PASSAGES}
    assert len(texts) == 64
    assert sum(any("一" <= char <= "鿿" for char in text) for text in texts) == 32


def test_the_same_order_passes_whatever_the_scores_are() -> None:
    scores = np.random.default_rng(1).normal(size=(32, 32)).astype(np.float32)
    agreement = compare_rankings(scores, scores * 0.5 + 3)
    assert agreement.passes
    assert (agreement.first, agreement.shared) == (1.0, 1.0)


def test_other_orders_do_not_pass() -> None:
    chance = np.random.default_rng(0)
    scores = chance.normal(size=(32, 32)).astype(np.float32)
    noise = chance.normal(size=(32, 32)).astype(np.float32)
    assert not compare_rankings(scores, noise).passes
    assert not compare_rankings(scores, -scores).passes
    assert compare_rankings(scores, -scores).correlation < -0.999
    assert compare_rankings(scores, scores + 1e-4 * noise).passes
    assert not compare_rankings(scores, scores + 0.5 * noise).passes
