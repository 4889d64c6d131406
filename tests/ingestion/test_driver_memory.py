"""What the driver of a run keeps does not grow with the corpus."""

from __future__ import annotations

import pickle

from rag_cluster.domain.documents import Receipt
from rag_cluster.ingestion.report import Tally
from rag_cluster.ingestion.stage_times import StageSpan

OUTCOMES = ("ready", "failed", "skipped")


def receipt(number: int) -> Receipt:
    return Receipt(
        f"file:///folder/{number:06}.x{number}",
        f"{number:032}",
        OUTCOMES[number % 3],
        seconds=number % 977,
        stage="plan",
        error_type="unsupported_document_type",
        message=f"message {number:06}",
    )


def test_a_tally_of_a_hundred_thousand_receipts_and_spans_is_as_large_as_one_of_ten_thousand() -> None:
    tally = Tally()
    sizes: list[int] = []
    for number in range(100_000):
        tally.add(receipt(number))
        if number % 10 == 0:
            tally.timeline.add([StageSpan("parse", number, number + 10.0, 5.0, 1)])
        if number in (9_999, 99_999):
            sizes.append(len(pickle.dumps(tally)))
    assert tally.listed == 100_000
    assert sizes[1] < 1.1 * sizes[0] < 200_000
